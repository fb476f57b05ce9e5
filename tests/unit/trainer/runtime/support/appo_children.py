"""Ends of a rollout ring and of a weight board in processes of their own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from trials import CUT_OFF, ENDED, Fatal

from drivetrain_trainer.runtime.rollout_ring import DropPolicy, RolloutRing
from drivetrain_trainer.runtime.weight_board import WeightBoard

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.runtime.descriptors import Channel
    from drivetrain_trainer.runtime.doorbell import Doorbell, Peer
    from drivetrain_trainer.runtime.rollout_ring import Rollout


def pattern(number: int, size: int) -> Tensor:
    """Values that no other number has at any place."""
    return torch.arange(size, dtype=torch.float32).mul_(0.5).add_(float(number))


def fill(rollout: Rollout, number: int) -> None:
    """Every field by its rollout's number, and another value in each field."""
    for place, field in enumerate(rollout.fields()):
        field.copy_(pattern(number + 1000 * place, field.numel()).view(field.shape))


def check(rollout: Rollout, number: int) -> None:
    """That it is what `fill` wrote, whole."""
    for place, field in enumerate(rollout.fields()):
        expected = pattern(number + 1000 * place, field.numel()).view(field.shape)
        assert torch.equal(field, expected), f"rollout {number}, field {place} is torn"


@dataclass(frozen=True)
class RolloutTrial:
    """A collector that dies at a word, or ends after its rollouts."""

    ring: RolloutRing
    begin: Doorbell
    count: int
    die_at: int | None
    """The word that it writes no more; None lives on."""

    def live(self, parent: Peer) -> int:
        """What its process does; the exit status."""
        producer = self.ring.producer(parent)
        if self.die_at is not None:
            # Both ends of the slot's lock and the line's accounting, in the order of the writes.
            budget = [self.die_at]
            producer._headers = [Fatal(words, budget) for words in producer._headers]  # type: ignore[misc]
            line = producer._line
            line._headers = [Fatal(words, budget) for words in line._headers]  # type: ignore[misc]
            line._own = Fatal(line._own, budget)  # type: ignore[assignment]
        for number in range(self.count):
            rollout = producer.begin()
            if not hasattr(rollout, "observations"):
                return CUT_OFF
            fill(rollout, number)
            producer.publish(policy_version=number)
        return ENDED


def write_rollouts(channel: Channel, parent: Peer) -> int:
    """Write them, by the thousand or until killed; the version is the number."""
    ring, count, pause_s = channel.receive()
    assert isinstance(ring, RolloutRing)
    producer = ring.producer(parent, policy=DropPolicy.WAIT)
    channel.send("ready")
    for number in range(count):
        rollout = producer.begin()
        if not hasattr(rollout, "observations"):
            return 4
        fill(rollout, number)
        producer.publish(policy_version=number)
        time.sleep(pause_s)
    return 0


def read_rollouts(channel: Channel, parent: Peer) -> int:
    """Take so many, then stop looking, holding none."""
    ring, count = channel.receive()
    consumer = ring.consumer(parent)
    channel.send("ready")
    for number in range(count):
        rollout = consumer.await_rollout(60.0)
        check(rollout, number)
        consumer.release(rollout)
    channel.send("done")
    channel.receive()
    return 0


def publish_weights(channel: Channel, _: Peer) -> int:
    """Publish as fast as possible until killed; values are the version's pattern."""
    board = channel.receive()
    assert isinstance(board, WeightBoard)
    channel.send("ready")
    version = 0
    while True:
        board.publish(version, pattern(version % 100_000, board.size))
        version += 3
