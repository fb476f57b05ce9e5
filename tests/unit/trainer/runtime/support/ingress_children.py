"""Ends of an ingress in processes of their own, which die at a chosen word."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from trials import CUT_OFF, ENDED, Fatal

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.runtime.doorbell import Doorbell, Peer
    from drivetrain_trainer.runtime.ingress import ReplayIngress


@dataclass(frozen=True)
class Trial:
    """What one of these processes is to do."""

    ingress: ReplayIngress
    begin: Doorbell
    vectors: tuple[tuple[int, ...], ...] = ()
    """Rows of the parts of each tick's vector, for a writer; none for a reader."""
    die_at: int | None = None
    """The word that it writes no more; None lives on."""
    pause_s: float = 0.0
    """After each part or chunk."""

    def live(self, parent: Peer) -> int:
        """What its process does; the exit status."""
        return _write(self, parent) if self.vectors else _read(self, parent)


def rows_of(first: int, count: int, width: int) -> Tensor:
    """Rows whose every value is their number."""
    return torch.arange(first, first + count, dtype=torch.float32)[:, None].expand(count, width)


def _write(trial: Trial, parent: Peer) -> int:
    producer = trial.ingress.producer(parent)
    if trial.die_at is not None:
        budget = [trial.die_at]
        producer._own = Fatal(producer._own, budget)  # type: ignore[assignment]
        producer._headers = [Fatal(words, budget) for words in producer._headers]  # type: ignore[misc]
    first = 0
    for tick, parts in enumerate(trial.vectors):
        for number, part in enumerate(parts, start=1):
            rows = rows_of(first, part, trial.ingress.width)
            result = producer.write(rows, tick, last=number == len(parts))
            if result.value != "complete":
                return CUT_OFF
            first += part
            time.sleep(trial.pause_s)
    return ENDED


def _read(trial: Trial, parent: Peer) -> int:
    consumer = trial.ingress.consumer(parent)
    if trial.die_at is not None:
        consumer._own = Fatal(consumer._own, [trial.die_at])  # type: ignore[assignment]
    taken: list[Tensor] = []
    tick = 0
    while True:
        consumer.drain(taken.append, tick)
        tick += 1
        time.sleep(trial.pause_s)
