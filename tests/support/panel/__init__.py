"""Stored moments of runs, as the panel is drawn from them, and the picture made of one."""
