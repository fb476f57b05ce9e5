"""Vector environments: the interface, and the manager-based ones over a physics backend."""
