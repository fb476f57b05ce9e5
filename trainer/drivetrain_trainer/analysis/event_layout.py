"""Scalar events decoded by their shape: whole columns of a file at once.

A logger writes the same tags over and over, so that the payloads of its reports differ in
the bytes of the wall time, the step and the values alone. The first payload of a shape is
read field by field; the others are compared with it and their columns taken as they lie.
What has another shape (histograms, images, tensors, session marks) goes through protobuf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WALL_TIME: Final = 0x09
_STEP: Final = 0x10
_SUMMARY: Final = 0x2A
_VALUE: Final = 0x0A
_TAG: Final = 0x0A
_SIMPLE_VALUE: Final = 0x15
_METADATA: Final = 0x4A
_CONTINUES: Final = 0x80
_VARINT_LIMIT: Final = 10


@dataclass(frozen=True)
class Layout:
    """Where a payload of one shape holds what."""

    tags: tuple[str, ...]
    """Tags in the order in which the payload has them."""
    mask: NDArray[np.uint8]
    """(L,): bits that every payload of this shape has in common."""
    template: NDArray[np.uint8]
    """(L,): those bits."""
    wall_time: int | None
    """Offset of the eight bytes of the wall time; None where it is left out, being 0."""
    step: tuple[int, int] | None
    """Offset and bytes of the step; None where it is left out, being 0."""
    values: NDArray[np.int64]
    """(m,): offsets of the values' four bytes."""

    def fits(self, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which of the payloads (n, L) have this shape: (n,)."""
        matched: NDArray[np.bool_] = np.all((rows & self.mask) == self.template, axis=1)
        return matched

    def wall_times_of(self, rows: NDArray[np.uint8]) -> NDArray[np.float64]:
        """(n,) seconds since 1970."""
        if self.wall_time is None:
            return np.zeros(len(rows))
        octets = np.ascontiguousarray(rows[:, self.wall_time : self.wall_time + 8])
        return octets.view("<f8")[:, 0].astype(np.float64)

    def steps_of(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        """(n,) steps."""
        total = np.zeros(len(rows), dtype=np.uint64)
        if self.step is None:
            return total.astype(np.int64)
        at, count = self.step
        for index in range(count):
            part = (rows[:, at + index] & 0x7F).astype(np.uint64)
            total |= part << np.uint64(7 * index)
        return total.view(np.int64)

    def values_of(self, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(n, m) values as stored."""
        octets = rows[:, (self.values[:, None] + np.arange(4)).ravel()]
        return np.ascontiguousarray(octets).view("<f4")


@dataclass
class _Fields:
    """What has been found of a payload so far."""

    payload: bytes
    mask: bytearray
    tags: list[str]
    values: list[int]
    wall_time: int | None = None
    step: tuple[int, int] | None = None


def layout_of(payload: bytes) -> Layout | None:
    """The shape of a payload that holds scalars alone; None for any other."""
    found = _Fields(payload, bytearray(b"\xff" * len(payload)), [], [])
    try:
        whole = _read_event(found)
    except (IndexError, UnicodeDecodeError):
        return None
    if not whole or not found.tags:
        return None
    mask = np.frombuffer(bytes(found.mask), dtype=np.uint8)
    return Layout(
        tags=tuple(found.tags),
        mask=mask,
        template=np.frombuffer(payload, dtype=np.uint8) & mask,
        wall_time=found.wall_time,
        step=found.step,
        values=np.array(found.values, dtype=np.int64),
    )


def _read_event(found: _Fields) -> bool:
    """Read the fields of an Event; False for one that is not of scalars alone."""
    payload, at = found.payload, 0
    seen: set[int] = set()
    while at < len(payload):
        key = payload[at]
        if key in seen:
            return False
        seen.add(key)
        at += 1
        if key == _WALL_TIME:
            found.wall_time = at
            found.mask[at : at + 8] = bytes(8)
            at += 8
        elif key == _STEP:
            _, after = _varint(payload, at)
            found.step = (at, after - at)
            found.mask[at:after] = bytes([_CONTINUES]) * (after - at)
            at = after
        elif key == _SUMMARY:
            size, at = _varint(payload, at)
            if not _read_summary(found, at, at + size):
                return False
            at += size
        else:
            return False
    return at == len(payload)


def _read_summary(found: _Fields, at: int, end: int) -> bool:
    while at < end:
        if found.payload[at] != _VALUE:
            return False
        size, at = _varint(found.payload, at + 1)
        if not _read_value(found, at, at + size):
            return False
        at += size
    return at == end


def _read_value(found: _Fields, at: int, end: int) -> bool:
    payload, tag, value = found.payload, None, None
    while at < end:
        key = payload[at]
        at += 1
        if key == _TAG and tag is None:
            size, at = _varint(payload, at)
            tag = payload[at : at + size].decode()
            at += size
        elif key == _SIMPLE_VALUE and value is None:
            value = at
            at += 4
        elif key == _METADATA:
            size, at = _varint(payload, at)
            at += size
        else:
            return False
    if at != end or end > len(payload) or tag is None or value is None:
        return False
    found.tags.append(tag)
    found.values.append(value)
    found.mask[value : value + 4] = bytes(4)
    return True


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """A varint and the offset after it; IndexError where it does not end in time."""
    value = 0
    for index in range(_VARINT_LIMIT):
        octet = payload[at + index]
        value |= (octet & 0x7F) << (7 * index)
        if not octet & _CONTINUES:
            return value, at + index + 1
    raise IndexError(at)
