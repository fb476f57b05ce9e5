"""Ends of an ingress in processes of their own, which die at a chosen word.

A server of these processes imports torch once and forks them: a trial takes milliseconds. A
process begins at a bell, so that its parent holds a descriptor of it before it can end.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from drivetrain_trainer.runtime.doorbell import Doorbell, readable
from drivetrain_trainer.runtime.faults import PeerDiedError

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.runtime.descriptors import Channel
    from drivetrain_trainer.runtime.doorbell import Peer
    from drivetrain_trainer.runtime.ingress import ReplayIngress

ENDED = 0
PEER_DIED = 3
CUT_OFF = 4
"""The write returned early."""
FAILED = 5


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


class Fatal:
    """Words of which the one of that number is the process' end, before it is written."""

    def __init__(self, words: Any, budget: list[int]) -> None:
        self._words = words
        self._budget = budget

    def __getitem__(self, place: int) -> int:
        value: int = self._words[place]
        return value

    def __setitem__(self, place: int, value: int) -> None:
        if self._budget[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._budget[0] -= 1
        self._words[place] = value


def serve(channel: Channel, parent: Peer) -> int:
    """Fork a process for each trial; say its number, then how it ended."""
    while True:
        try:
            trial = channel.receive()
        except EOFError:
            return 0
        pid = os.fork()
        if pid == 0:
            os._exit(_live(trial, parent))
        channel.send(pid)
        _, status = os.waitpid(pid, 0)
        channel.send(os.waitstatus_to_exitcode(status))


def rows_of(first: int, count: int, width: int) -> Tensor:
    """Rows whose every value is their number."""
    return torch.arange(first, first + count, dtype=torch.float32)[:, None].expand(count, width)


def _live(trial: Trial, parent: Peer) -> int:
    try:
        readable(trial.begin, 60.0)
        return _write(trial, parent) if trial.vectors else _read(trial, parent)
    except PeerDiedError:
        return PEER_DIED
    except BaseException:  # noqa: BLE001  # a forked process must not go on as its parent
        return FAILED


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
