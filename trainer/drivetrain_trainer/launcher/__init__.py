"""PID 1 of a pod: checks first, runs torchrun, passes signals on, and tells the end honestly."""
