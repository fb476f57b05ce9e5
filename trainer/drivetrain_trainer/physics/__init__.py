"""The physics port and its backends: many worlds of one model, stepped as one batch."""
