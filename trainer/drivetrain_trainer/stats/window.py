"""What one tracker holds between two exports."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from drivetrain_trainer.stats.moments import Moments, folded, masked_moments
from drivetrain_trainer.stats.reduce_type import ReduceType, ReduceTypeConflictError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCALARS_KEPT = 4096
"""Host scalars of a key before they are folded into four figures."""
BATCHES_KEPT = 256
"""Compact batches of a key before they are folded into one."""


_NONE = Moments()


class Place(NamedTuple):
    """Where a batch was recorded; only what was recorded there may be folded there."""

    device: torch.device
    stream: int
    """Handle of the CUDA stream; 0 elsewhere."""

    @classmethod
    def of(cls, tensor: Tensor) -> Place:
        """The tensor's device, and the stream that is current there."""
        device = tensor.device
        if device.type != "cuda":
            return cls(device, 0)
        return cls(device, torch.cuda.current_stream(device).cuda_stream)


@dataclass
class Entry:
    """All records of one key; whoever adds holds the tracker's lock.

    A signal handler of the same thread may add at any point of an addition.
    """

    reduce_type: ReduceType
    host: Moments = field(default_factory=Moments)
    scalars: list[float] = field(default_factory=list)
    compact: defaultdict[Place, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    full: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def add_scalar(self, value: float) -> None:
        """Keep a host value; memory stays bounded."""
        self.scalars.append(value)
        if len(self.scalars) >= SCALARS_KEPT:
            kept, self.scalars = self.scalars, []
            self.host = self.host + Moments.of(kept)

    def add_compact(self, figures: Tensor) -> None:
        """Keep a batch's float64 (4,) on its device; memory stays bounded."""
        batches = self.compact[Place.of(figures)]
        batches.append(figures)
        if len(batches) >= BATCHES_KEPT:
            kept = batches[:]
            del batches[: len(kept)]
            batches.append(folded(kept))

    def devices(self) -> set[torch.device]:
        """Where its batches lie."""
        return {place.device for place in self.compact} | {value.device for value, _ in self.full}

    def device_figures(self) -> list[Tensor]:
        """Every batch as float64 (4,) on its device."""
        figures = [one for batches in self.compact.values() for one in batches]
        figures += [masked_moments(value, mask) for value, mask in self.full]
        return figures


class Window:
    """The entries by full key; a key has one reduce type, an output name one key."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._owners: dict[str, str] = {}

    def entry(self, key: str, reduce_type: ReduceType) -> Entry:
        """The entry of a key, made at its first record.

        Raises:
            ReduceTypeConflictError: if the key has another reduce type since the last
                export, or if another key's export would have the same name.
        """
        found = self.entries.get(key)
        if found is None:
            claim_outputs(self._owners, key, reduce_type)
            found = self.entries.setdefault(key, Entry(reduce_type))
        if found.reduce_type is not reduce_type:
            raise ReduceTypeConflictError(
                f"stat {key!r} is recorded as {reduce_type.name}, but as "
                f"{found.reduce_type.name} before it since the last export"
            )
        return found


def claim_outputs(owners: dict[str, str], key: str, reduce_type: ReduceType) -> None:
    """Note the output names of a key in `owners`.

    Raises:
        ReduceTypeConflictError: if one is another key's.
    """
    names = reduce_type.outputs(key)
    for name in names:
        if owners.get(name, key) != key:
            raise ReduceTypeConflictError(
                f"stats {owners[name]!r} and {key!r} ({reduce_type.name}) would both be "
                f"exported as {name!r}"
            )
    owners.update(dict.fromkeys(names, key))


def resolve(entries: Mapping[str, Entry]) -> dict[str, Moments]:
    """The figures of every entry on the host: one transfer a device, however many keys."""
    results: dict[str, Moments] = {}
    waiting: defaultdict[torch.device, list[tuple[str, Tensor]]] = defaultdict(list)
    for device in {device for entry in entries.values() for device in entry.devices()}:
        _await(device)
    for key, entry in entries.items():
        kept = Moments.of(entry.scalars) if entry.scalars else _NONE
        results[key] = entry.host + kept
        for figures in entry.device_figures():
            waiting[figures.device].append((key, figures))
    for pairs in waiting.values():
        for (key, _), row in zip(pairs, _fetch(one for _, one in pairs), strict=True):
            results[key] = results[key] + Moments(*row)
    return results


def _await(device: torch.device) -> None:
    """Other streams may have recorded what this one is about to read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _fetch(figures: Iterable[Tensor]) -> list[list[float]]:
    rows: list[list[float]] = torch.stack(list(figures)).cpu().tolist()
    return rows
