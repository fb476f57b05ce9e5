"""Soft actor-critic (Haarnoja et al., arXiv:1812.05905), in the style of FastSAC."""
