"""Manifests: pure builders of the Kubernetes objects that a run owns, as plain dicts."""
