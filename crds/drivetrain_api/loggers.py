"""Persistent metric backends by name: entry points, looked up without importing any."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from drivetrain_api.installed import installed
from drivetrain_api.training import NO_LOGGER

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

LOGGER_GROUP: Final = "drivetrain.loggers"
"""Entry points ``name = module:make``; `make` takes a context and returns a backend."""


class UnknownLoggerError(LookupError):
    """No backend of that name is installed; the message names near ones."""


def installed_loggers() -> tuple[str, ...]:
    """Names of the installed backends, sorted."""
    return tuple(sorted({point.name for point in installed(LOGGER_GROUP)}))


def logger_entry_point(name: str) -> EntryPoint:
    """The entry point of a backend, not yet loaded.

    Raises:
        UnknownLoggerError: with near names, or with all that are installed.
    """
    for point in installed(LOGGER_GROUP):
        if point.name == name:
            return point
    names = (*installed_loggers(), NO_LOGGER)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    raise UnknownLoggerError(f"no logger {name!r} is installed; {hint}have: {', '.join(names)}")
