"""The API server: the only package that talks to it."""
