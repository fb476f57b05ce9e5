"""What the machine tells of itself to a process: memory, CPUs, NVIDIA GPUs, batch jobs."""
