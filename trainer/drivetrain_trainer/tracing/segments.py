"""The newest part of a trace on disk, in two files of at most half the bound each.

A file is a JSON array with one event a line, in Chrome's trace format, whose closing bracket
is optional: it can be read whatever the process was doing when it was killed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.tracing.log import logger
from drivetrain_trainer.tracing.settings import SUFFIX, older

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

OPENING: Final = b"[\n"
SEPARATOR: Final = b",\n"
TRACE_ENDS: Final = "trace ends"
_CLOSING_BYTES: Final = 256
"""Kept free for the last event of a file."""
_STARTS: Final = 1000
"""Files of one process and attempt: an attempt that is started again by hand has another."""


class Segments:
    """Appends whole events; never raises once open.

    Args:
        path: The file; where it is there already, a number is put to its name.
        max_bytes: Of both files together.
        header: The events that every file begins with, given the number of files before it.
        instant: An event of now, given its name.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        *,
        header: Callable[[int], bytes],
        instant: Callable[[str], str],
    ) -> None:
        """Open the file.

        Raises:
            OSError: it cannot be written.
        """
        self._limit = max_bytes // 2 - _CLOSING_BYTES
        self._header = header
        self._instant = instant
        self._number = 0
        self._size = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._file = _create(path)
        self._begin()

    def write(self, events: bytes) -> None:
        """Append events, each ended by `SEPARATOR`; begins a new file where this one is full."""
        if self._file is None:
            return
        try:
            if self._size + len(events) > self._limit and self._size > self._begun:
                self._turn_over()
            self._put(events)
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """End the trace; a second time does nothing."""
        if self._file is None:
            return
        try:
            self._end(TRACE_ENDS)
        except OSError as error:
            self._fail(error)
        else:
            self._file = None

    def _end(self, event: str) -> None:
        """End the file with an event that says why."""
        assert self._file is not None
        self._put(self._instant(event).encode() + b"\n]\n")
        self._file.close()

    def _begin(self) -> None:
        self._size = 0
        self._put(OPENING + self._header(self._number))
        self._begun = self._size
        """Size of a file without events."""

    def _turn_over(self) -> None:
        """What was written so far is the older half of the window from now on."""
        self._end("trace goes on in the newer file")
        self.path.replace(older(self.path))
        self._file = self.path.open("xb", buffering=0)
        if self._number == 0:
            logger(__name__).info(
                "trace has reached half of training.trace_max_megabytes: "
                "it keeps the newest events from now on",
                path=str(self.path),
            )
        self._number += 1
        self._begin()

    def _put(self, data: bytes) -> None:
        assert self._file is not None
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._size += len(data)

    def _fail(self, error: OSError) -> None:
        """A full disk ends the trace, never the training."""
        logger(__name__).warning(
            "trace ends: it cannot be written", path=str(self.path), reason=str(error)
        )
        if self._file is not None:
            self._file.close()
        self._file = None


def _create(path: Path) -> tuple[Path, BinaryIO | None]:
    for start in range(1, _STARTS):
        name = path.name if start == 1 else f"{path.name.removesuffix(SUFFIX)}-{start}{SUFFIX}"
        candidate = path.with_name(name)
        try:
            return candidate, candidate.open("xb", buffering=0)
        except FileExistsError:
            continue
    raise FileExistsError(f"{path}: {_STARTS - 1} traces of one attempt")


def event_line(event: dict[str, object]) -> bytes:
    """An event as it stands in the file, without the separator."""
    return json.dumps(event, separators=(",", ":")).encode()
