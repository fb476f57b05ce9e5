"""Entry points of what is installed, by group: scanned once a process and search path."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points


def installed(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, in the order of the search path; none is imported.

    A scan reads the metadata of every distribution there is, which takes milliseconds, and a
    suite asks for a task and its loggers with each of its members. It is made again where
    `sys.path` has changed; what is installed into a folder of it later is seen by the next
    process alone.
    """
    return _scanned(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _scanned(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    del path
    return tuple(entry_points(group=group))
