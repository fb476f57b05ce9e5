"""Scalars of TensorBoard event files, streamed in bounded memory."""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import structlog

from drivetrain_trainer.analysis.event_layout import Layout, layout_of
from drivetrain_trainer.analysis.records import RecordReader, Records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from tensorboard.compat.proto.event_pb2 import Event

log = structlog.get_logger(__name__)

_LAYOUT_LIMIT: Final = 4096
_DT_FLOAT: Final = 1
_DT_DOUBLE: Final = 2
_PACKED: Final = {_DT_FLOAT: "<f", _DT_DOUBLE: "<d"}


class ScalarEvent(NamedTuple):
    """One value of one tag."""

    step: int
    """Environment steps."""
    wall_time: float
    """Seconds since 1970."""
    tag: str
    """As written."""
    value: float
    """NaN and infinities as written."""


@dataclass(frozen=True)
class Block:
    """Reports with the same tags."""

    tags: tuple[str, ...]
    """m tags."""
    ordinals: NDArray[np.int64]
    """(n,) ascending: the order in which the reports were written."""
    steps: NDArray[np.int64]
    """(n,)."""
    wall_times: NDArray[np.float64]
    """(n,) seconds since 1970."""
    values: NDArray[np.floating]
    """(n, m), float32 or float64 as stored."""


class Restart(NamedTuple):
    """A session began: what was written before it at `step` or beyond is void."""

    ordinal: int
    step: int


@dataclass(frozen=True)
class Piece:
    """What one bounded piece of a file held."""

    blocks: tuple[Block, ...]
    """Reports, a block for each set of tags."""
    restarts: tuple[Restart, ...]
    """Session starts."""
    end: int
    """Offset in the file up to which it has been read."""


def read_events(path: Path) -> Iterator[ScalarEvent]:
    """Every scalar of an event file, in the order in which they were written.

    Memory is bounded by a piece of a few megabytes, whatever the file holds. An unfinished
    end or a damaged record is warned of, and what is sound is read.

    Raises:
        OSError: the file cannot be opened or read.
    """
    file = EventFile(path)
    for piece in file:
        rows = [
            (ordinal, column, event)
            for block in piece.blocks
            for ordinal, step, wall_time, values in zip(
                block.ordinals.tolist(),
                block.steps.tolist(),
                block.wall_times.tolist(),
                block.values.tolist(),
                strict=True,
            )
            for column, event in enumerate(
                ScalarEvent(step, wall_time, tag, value)
                for tag, value in zip(block.tags, values, strict=True)
            )
        ]
        rows.sort(key=lambda row: row[:2])
        yield from (event for _, _, event in rows)
    for message in file.damage:
        log.warning("event file is damaged", reason=message)


class EventFile:
    """The scalars and session starts of one event file, in pieces."""

    def __init__(self, path: Path, *, limit: int | None = None) -> None:
        """Read `path` up to `limit` bytes, or to where it ends now."""
        self._reader = RecordReader(path, limit=limit)
        self._layouts: dict[int, list[Layout]] = defaultdict(list)
        self._count = 0
        self.passed_over = 0
        """Values that are not scalars."""

    @property
    def damage(self) -> tuple[str, ...]:
        """What could not be read, for a person; complete once the file has been read."""
        return tuple(self._reader.damage)

    def __iter__(self) -> Iterator[Piece]:
        """The pieces in order.

        Raises:
            OSError: the file cannot be opened or read.
        """
        for records in self._reader:
            blocks, left = self._by_layout(records)
            others, restarts = self._by_message(records, left)
            yield Piece((*blocks, *others), restarts, records.end)

    def _by_layout(self, records: Records) -> tuple[list[Block], list[int]]:
        """Blocks of the payloads whose shape is plain, and the indices of the others."""
        blocks: list[Block] = []
        left: list[int] = []
        lengths = np.where(records.sound, records.lengths, -1)
        for length in np.unique(lengths).tolist():
            if length < 0:
                continue
            indices = np.flatnonzero(lengths == length)
            rows = _rows(records, indices, length)
            for layout in self._layouts[length]:
                if not len(indices):
                    break
                matched = layout.fits(rows)
                if matched.any():
                    blocks.append(_block(records, indices[matched], layout, rows[matched]))
                    indices, rows = indices[~matched], rows[~matched]
            while len(indices):
                layout_found = self._learn(records.payload(int(indices[0])))
                if layout_found is None:
                    left.append(int(indices[0]))
                    indices, rows = indices[1:], rows[1:]
                    continue
                matched = layout_found.fits(rows)
                blocks.append(_block(records, indices[matched], layout_found, rows[matched]))
                indices, rows = indices[~matched], rows[~matched]
        return blocks, left

    def _learn(self, payload: bytes) -> Layout | None:
        layout = layout_of(payload)
        if layout is not None:
            if self._count >= _LAYOUT_LIMIT:
                self._layouts.clear()
                self._count = 0
            self._layouts[len(payload)].append(layout)
            self._count += 1
        return layout

    def _by_message(
        self, records: Records, indices: list[int]
    ) -> tuple[list[Block], tuple[Restart, ...]]:
        """Payloads of any other shape, through protobuf."""
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - rarely needed
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # noqa: PLC0415 - as above

        found: dict[tuple[str, ...], list[tuple[int, int, float, list[float]]]] = {}
        restarts: list[Restart] = []
        for index in sorted(indices):
            ordinal = records.first + index
            try:
                event = Event.FromString(records.payload(index))
            except DecodeError:
                self._reader.tell(f"record {ordinal}", "no event: left out")
                continue
            if event.session_log.status == SessionLog.START:
                restarts.append(Restart(ordinal, event.step))
            scalars = self._scalars(event)
            if scalars:
                row = (ordinal, event.step, event.wall_time, list(scalars.values()))
                found.setdefault(tuple(scalars), []).append(row)
        return [_block_of(tags, rows) for tags, rows in found.items()], tuple(restarts)

    def _scalars(self, event: Event) -> dict[str, float]:
        scalars: dict[str, float] = {}
        for value in event.summary.value:
            number = _number(value)
            if number is None:
                self.passed_over += 1
            else:
                scalars[value.tag] = number
        return scalars


def _number(value: Event.summary.value) -> float | None:
    """The value of a scalar summary, as `add_scalar` or `tf.summary.scalar` writes it."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or value.tensor.tensor_shape.dim:
        return None
    tensor = value.tensor
    form = _PACKED.get(tensor.dtype)
    if form is None:
        return None
    if len(tensor.tensor_content) == struct.calcsize(form):
        return float(struct.unpack(form, tensor.tensor_content)[0])
    numbers = tensor.float_val if tensor.dtype == _DT_FLOAT else tensor.double_val
    return float(numbers[0]) if len(numbers) == 1 else None


def _rows(records: Records, indices: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
    """(n, length): the payloads of that length, one a row; a view where they lie evenly."""
    octets = np.frombuffer(records.data, dtype=np.uint8)
    starts = records.starts[indices]
    windows = np.lib.stride_tricks.sliding_window_view(octets, length)
    gaps = np.diff(starts)
    if len(gaps) and (gaps == gaps[0]).all():
        return windows[starts[0] : starts[-1] + 1 : gaps[0]]
    return windows[starts]


def _block(
    records: Records, indices: NDArray[np.int64], layout: Layout, rows: NDArray[np.uint8]
) -> Block:
    return Block(
        tags=layout.tags,
        ordinals=records.first + indices,
        steps=layout.steps_of(rows),
        wall_times=layout.wall_times_of(rows),
        values=layout.values_of(rows),
    )


def _block_of(tags: tuple[str, ...], rows: list[tuple[int, int, float, list[float]]]) -> Block:
    ordinals, steps, wall_times, values = zip(*rows, strict=True)
    return Block(
        tags=tags,
        ordinals=np.array(ordinals, dtype=np.int64),
        steps=np.array(steps, dtype=np.int64),
        wall_times=np.array(wall_times, dtype=np.float64),
        values=np.array(values, dtype=np.float64).reshape(len(rows), len(tags)),
    )
