"""Reconcile: a pure function from what is observed to what must be done next."""
