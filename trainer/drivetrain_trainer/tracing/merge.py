"""One file out of the traces of all processes, ranks, nodes and attempts of a run."""

from __future__ import annotations

import gzip
import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, cast

from drivetrain_trainer.tracing.reader import Reading, read_together
from drivetrain_trainer.tracing.segments import OPENING, SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_COMPRESSION: Final = 4
"""Of gzip: twice as fast as the default for a few per cent more."""
_PROGRESS_EVENTS: Final = 50_000


@dataclass(frozen=True)
class Merged:
    """What was written."""

    path: Path
    files: int
    events: int
    bytes: int
    reading: Reading


def merge(
    sources: Sequence[Path],
    output: Path,
    *,
    progress: Callable[[int], None] = lambda _events: None,
) -> Merged:
    """Write the events of `sources` by time into `output`; compressed if it ends in ``.gz``.

    The file is there whole or not at all.

    Args:
        sources: Trace files.
        output: The file to write.
        progress: Told the number of events now and then.

    Raises:
        TraceError: a source is no trace.
        OSError: `output` cannot be written.
    """
    reading = Reading()
    count = 0
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(partial.open("wb"))
            if output.suffix == ".gz":
                compressed = gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0)
                file = cast("IO[bytes]", stack.enter_context(compressed))
            file.write(OPENING)
            for event in read_together(sources, reading):
                if count:
                    file.write(SEPARATOR)
                file.write(event.line)
                count += 1
                if count % _PROGRESS_EVENTS == 0:
                    progress(count)
            file.write(b"\n]\n")
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return Merged(output, len(sources), count, output.stat().st_size, reading)
