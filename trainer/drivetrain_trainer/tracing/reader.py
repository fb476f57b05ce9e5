"""Reads traces, live, whole or cut anywhere, an event at a time."""

from __future__ import annotations

import gzip
import heapq
import json
import zlib
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from drivetrain_trainer.tracing.header import HEADER_EVENT
from drivetrain_trainer.tracing.settings import SUFFIX, TraceFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_GZIP_MAGIC: Final = b"\x1f\x8b"
_LINE_LIMIT: Final = 1 << 20
_CUT: Final = b"cut"
"""Stands for what is missing of a compressed file; not an event."""
_decode: Final = json.JSONDecoder().raw_decode
_SUMMARY: Final = "run_summary.json"
_FOLDER: Final = "traces"
_NANOSECONDS: Final = 1000.0
"""Of Chrome's microseconds."""


class TraceError(Exception):
    """A path that holds no trace of ours; the message names it."""


class Event(NamedTuple):
    """One event; times in nanoseconds on the clock of the first file that is read."""

    phase: str
    """Chrome's: X span, s t f arrow, C counter, i instant, M metadata."""
    name: str
    process: int
    track: int
    start_ns: int
    end_ns: int
    """Equals `start_ns` but for spans."""
    fields: Mapping[str, Any]
    """The event as it stands in the file."""
    line: bytes
    """The same as it was read, without the separator."""

    @property
    def args(self) -> Mapping[str, Any]:
        """Its arguments."""
        found: Mapping[str, Any] = self.fields.get("args", {})
        return found

    def shifted(self, by_ns: int) -> Event:
        """The same on another machine's clock."""
        if self.phase == "M":
            return self
        fields = {**self.fields, "ts": round(self.fields["ts"] + by_ns / _NANOSECONDS, 3)}
        line = json.dumps(fields, separators=(",", ":")).encode()
        return self._replace(
            start_ns=self.start_ns + by_ns, end_ns=self.end_ns + by_ns, fields=fields, line=line
        )


@dataclass
class Reading:
    """What a pass over files came across."""

    damaged: list[str] = field(default_factory=list)
    """Lines that are no events and do not end their file, as ``path:line``."""
    torn: list[str] = field(default_factory=list)
    """Files whose last line was not whole: their process was killed, or still writes."""


def locate(path: Path) -> list[Path]:
    """The trace files of a run directory, of a folder of traces, or the one file itself.

    Raises:
        TraceError: there are none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise TraceError(f"{path}: no such file or directory")
    for folder in (path, path / _FOLDER, *_told(path)):
        found = sorted(
            trace
            for entry in (folder.iterdir() if folder.is_dir() else ())
            if (trace := TraceFile.of(entry)) is not None
        )
        if found:
            return [trace.path for trace in found]
    raise TraceError(
        f"{path}: no traces (rank*{SUFFIX}) there, in its folder {_FOLDER}, or where its "
        f"{_SUMMARY} says; was the run made with training.trace_enabled?"
    )


def _told(path: Path) -> list[Path]:
    """Where the run's summary says that its traces lie; relative paths start anywhere above."""
    try:
        told = json.loads((path / _SUMMARY).read_bytes()).get("trace_path")
    except (OSError, ValueError, AttributeError):
        return []
    if not isinstance(told, str):
        return []
    return [root / told for root in (path, *path.absolute().parents)]


def read(path: Path, reading: Reading | None = None) -> Iterator[Event]:
    """Events of one file, plain or compressed, in its order.

    Raises:
        TraceError: it cannot be read, or is no trace of this format.
    """
    reading = reading if reading is not None else Reading()
    try:
        with path.open("rb") as raw:
            compressed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            with gzip.open(raw) if compressed else nullcontext(raw) as file:
                yield from _events(file, path, reading)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error


def _events(file: IO[bytes] | gzip.GzipFile, path: Path, reading: Reading) -> Iterator[Event]:
    lines = _lines(file, path)
    first = next(lines, b"").strip()
    if first == _CUT:
        reading.torn.append(str(path))
        return
    if first not in (b"[", b""):
        raise TraceError(f"{path}: not a trace of Drivetrain, whose first line is [")
    bad: str | None = None
    for number, line in enumerate(lines, start=2):
        text = line.strip()
        if text in (b"]", b""):
            continue
        if bad is not None:
            reading.damaged.append(bad)
            bad = None
        event = _event(text.removesuffix(b","))
        if event is None:
            bad = f"{path}:{number}"
        else:
            yield event
    if bad is not None:
        reading.torn.append(str(path))


def _lines(file: IO[bytes] | gzip.GzipFile, path: Path) -> Iterator[bytes]:
    while True:
        try:
            line = file.readline(_LINE_LIMIT)
        except (EOFError, zlib.error):  # a compressed file that was cut
            yield _CUT
            return
        if not line:
            return
        if len(line) >= _LINE_LIMIT:
            raise TraceError(f"{path}: a line of more than {_LINE_LIMIT} bytes is no event")
        yield line


def _event(line: bytes) -> Event | None:
    try:
        fields, end = _decode(text := line.decode())
        if end != len(text):
            return None
        start = round(fields["ts"] * _NANOSECONDS)
        took = round(fields.get("dur", 0) * _NANOSECONDS)
        return Event(
            fields["ph"],
            fields["name"],
            fields["pid"],
            fields["tid"],
            start,
            start + took,
            fields,
            line,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_together(paths: Sequence[Path], reading: Reading | None = None) -> Iterator[Event]:
    """Events of several files by the time at which they were recorded, on one clock.

    Files of one machine share its monotonic clock; those of others are put beside them by
    the wall clocks in their headers. Memory does not grow with the files.

    Raises:
        TraceError: as of `read`.
    """
    offset = _Offset()
    shifts = [offset.shift(path) for path in paths]
    streams: dict[str, list[tuple[Path, int]]] = {}
    for path, shift in zip(paths, shifts, strict=True):
        # The halves of a process's window follow each other, older first.
        streams.setdefault(path.name.replace(".older", ""), []).append((path, shift))
    keyed = [_keyed(index, halves, reading) for index, halves in enumerate(streams.values())]
    for _, _, _, event in heapq.merge(*keyed):
        yield event


def _keyed(
    stream: int, halves: Iterable[tuple[Path, int]], reading: Reading | None
) -> Iterator[tuple[int, int, int, Event]]:
    """Events behind keys that never fall and are never equal, as merging needs them."""
    latest = -(2**63)
    count = 0
    for path, shift in halves:
        for event in read(path, reading):
            moved = event.shifted(shift) if shift else event
            if moved.phase != "M" and moved.end_ns > latest:
                latest = moved.end_ns
            count += 1
            yield latest, stream, count, moved


class _Offset:
    """Differences between machines' clocks, from the headers."""

    def __init__(self) -> None:
        self._reference: tuple[str, int] | None = None

    def shift(self, path: Path) -> int:
        """Nanoseconds to add to times of this file."""
        for event in read(path):
            if event.name == HEADER_EVENT:
                return self._of(event.args)
            break
        return 0

    def _of(self, facts: Mapping[str, Any]) -> int:
        boot = str(facts["boot_id"])
        offset = int(facts["realtime_ns"]) - int(facts["monotonic_ns"])
        if self._reference is None:
            self._reference = (boot, offset)
        same = boot and boot == self._reference[0]
        return 0 if same else offset - self._reference[1]
