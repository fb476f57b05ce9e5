"""Comparing runs with runs: what is better, by how much, and how sure that is."""
