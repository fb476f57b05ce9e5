"""Side-by-side measurements: ``python -m tests.bench [NAME ...]``."""
