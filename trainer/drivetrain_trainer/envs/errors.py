"""Errors of environments that a person can act on."""

from __future__ import annotations


class EnvError(RuntimeError):
    """An environment is used, or made, in a way it cannot work."""


class EnvClosedError(EnvError):
    """The environment was closed."""


class NonFiniteResetError(EnvError):
    """A reset itself gave an observation that is not finite: the task is broken."""
