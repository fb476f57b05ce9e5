"""The soak monitor: samples a tree of processes and judges the run that they are."""
