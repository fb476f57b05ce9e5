"""A report's values over the ranks, in one all-reduce.

The values of all canonical tags travel with a mask in one float64 vector whose layout
every rank knows. A member of a family that some rank names for the first time is agreed
on within the same report, at the cost of two more collectives; from then on it has a slot
like any other tag.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from drivetrain_api.metrics import METRICS, Reduction
from drivetrain_trainer.stats.collective import collective_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class RankDivergenceError(RuntimeError):
    """The ranks submit reports of different iterations: they are no longer in step."""


class RankReducer:
    """Reduces reports over a process group; without one it hands them back.

    Every rank calls `reduce` once for each iteration that is reported. A tag that a rank
    does not report is masked there: a mean is over the ranks that report it, a sum of
    them. A NaN on one rank makes the result NaN.
    """

    def __init__(
        self,
        reduction_of: Callable[[str], Reduction],
        *,
        rank: int,
        world_size: int,
        group: dist.ProcessGroup | None,
        extra_tags: Iterable[str] = (),
    ) -> None:
        self._reduction_of = reduction_of
        self._rank = rank
        self._world_size = world_size
        self._group = group
        self._slots: dict[str, int] = {}
        self._add((*METRICS, *extra_tags))
        self._device = collective_device(group) if world_size > 1 else torch.device("cpu")

    def reduce(self, values: Mapping[str, float], iteration: int) -> dict[str, float]:
        """The reduced values, the same on every rank.

        Raises:
            RankDivergenceError: if the ranks are not at the same iteration.
        """
        if self._world_size == 1:
            return dict(values)
        fresh = sorted(tag for tag in values if tag not in self._slots)
        names = json.dumps(fresh).encode() if fresh else b""
        tags = list(self._slots)
        known = self._packed(values, tags)
        header = torch.zeros(1 + self._world_size, dtype=torch.float64)
        header[0] = iteration
        header[1 + self._rank] = len(names)
        total = self._all_reduce(torch.cat((header, known.flatten())))
        self._check_step(float(total[0]), iteration)
        reduced = self._unpacked(total[header.numel() :], tags)
        lengths = total[1 : header.numel()]
        if bool(lengths.any()):
            added = self._agree(names, [int(length) for length in lengths])
            self._add(added)
            packed = self._packed(values, added).flatten()
            reduced |= self._unpacked(self._all_reduce(packed), added)
        return reduced

    def _add(self, tags: Iterable[str]) -> None:
        for tag in tags:
            self._slots.setdefault(tag, len(self._slots))

    def _packed(self, values: Mapping[str, float], tags: list[str]) -> Tensor:
        """(2, tags): values, zero where there is none, and the mask."""
        rows: tuple[list[float], list[float]] = ([], [])
        for tag in tags:
            present = tag in values and (
                self._rank == 0 or self._reduction_of(tag) is not Reduction.RANK0
            )
            rows[0].append(values[tag] if present else 0.0)
            rows[1].append(float(present))
        return torch.tensor(rows, dtype=torch.float64)

    def _unpacked(self, flat: Tensor, tags: list[str]) -> dict[str, float]:
        sums, counts = flat.reshape(2, -1).tolist()
        return {
            tag: total if self._reduction_of(tag) is Reduction.SUM else total / count
            for tag, total, count in zip(tags, sums, counts, strict=True)
            if count
        }

    def _all_reduce(self, vector: Tensor) -> Tensor:
        on_device = vector.to(self._device)
        dist.all_reduce(on_device, group=self._group)
        return on_device.cpu()

    def _check_step(self, total: float, iteration: int) -> None:
        if total != self._world_size * iteration:
            raise RankDivergenceError(
                f"rank {self._rank} reports iteration {iteration}, but the iterations of "
                f"{self._world_size} ranks add up to {total:.0f}"
            )

    def _agree(self, names: bytes, lengths: list[int]) -> list[str]:
        """The new tags of all ranks, in one order."""
        longest = max(lengths)
        mine = torch.zeros(longest, dtype=torch.uint8)
        mine[: len(names)] = torch.tensor(list(names), dtype=torch.uint8)
        gathered = [torch.empty_like(mine, device=self._device) for _ in lengths]
        dist.all_gather(gathered, mine.to(self._device), group=self._group)
        texts = [
            bytes(one[:length].tolist()).decode()
            for one, length in zip(gathered, lengths, strict=True)
        ]
        return sorted({tag for text in texts if text for tag in json.loads(text)})
