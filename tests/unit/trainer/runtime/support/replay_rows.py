"""Rows that say their number, and the plain list that a replay ring must agree with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import torch

from drivetrain_trainer.runtime.doorbell import Peer
from drivetrain_trainer.runtime.ingress import ReplayIngress
from drivetrain_trainer.runtime.replay_layout import RowLayout
from drivetrain_trainer.tracing import NO_FLOW

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.runtime.ingress_producer import IngressProducer
    from drivetrain_trainer.runtime.replay import ReplayRing
    from drivetrain_trainer.runtime.replay_layout import Batch
    from drivetrain_trainer.tracing import TickFlow

LAYOUT: Final = RowLayout(2, 1)


def numbered(first: int, count: int) -> Tensor:
    """Rows that say their number in every column."""
    return torch.arange(first, first + count, dtype=torch.float32)[:, None].repeat(1, LAYOUT.width)


def numbers(batch: Batch) -> list[int]:
    for values in (batch.action[..., 0], batch.reward, batch.next_observation[..., 1]):
        assert torch.equal(values, batch.observation[..., 0])
    return [int(number) for number in batch.reward.flatten().tolist()]


def line_to(
    ring: ReplayRing, depth: int = 2, slot_rows: int = 4, flow: TickFlow = NO_FLOW
) -> tuple[ReplayIngress, IngressProducer]:
    """An ingress that ends in `ring`, poisoned, and the writer's end of it."""
    ingress = ReplayIngress.create(depth, slot_rows, LAYOUT.width)
    ingress.slots().fill_(torch.nan)
    peer = Peer(os.getpid(), "self")
    ring.attach(ingress.consumer(peer, flow=flow))
    return ingress, ingress.producer(peer)


def attached(
    ring: ReplayRing, depth: int = 2, slot_rows: int = 4, flow: TickFlow = NO_FLOW
) -> IngressProducer:
    return line_to(ring, depth, slot_rows, flow)[1]


class PlainList:
    """What a ring holds, and what it draws on a CPU, in a few lines."""

    def __init__(self, capacity: int, seed: int) -> None:
        self._capacity = capacity
        self._seed = seed
        self._rows: list[int] = []

    def append(self, numbers: range) -> None:
        self._rows += numbers

    @property
    def held(self) -> list[int]:
        """Oldest first."""
        return self._rows[-self._capacity :]

    def placed(self) -> list[int]:
        """By their place in the ring."""
        places = [0] * len(self.held)
        for written, number in enumerate(self._rows):
            places[written % self._capacity] = number
        return places

    def draw(self, iteration: int, count: int) -> list[int]:
        generator = torch.Generator().manual_seed(self._seed + iteration)
        places = self.placed()
        return [places[at] for at in torch.randint(len(places), (count,), generator=generator)]
