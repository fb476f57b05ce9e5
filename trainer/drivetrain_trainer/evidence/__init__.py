"""What a run leaves on its storage: run directory, summary, configuration, checkpoints."""
