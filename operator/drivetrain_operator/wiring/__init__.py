"""Wiring: kopf, the controller loop, health, metrics and the operator's command."""
