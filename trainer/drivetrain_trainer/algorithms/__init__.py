"""Algorithms: networks, normalisation, distributional values, gradients across ranks, SAC."""
