"""Two processes a rank and what lies between them: memory, signals, rings, the collector.

Importing this package, or `collector` in it, does not import torch: the collector can be
spawned first, so that the imports of both processes overlap.
"""
