"""A tick's requests, answered as they come: which, when, and over what batch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from drivetrain_trainer.runtime.doorbell import Doorbell, Meanwhile, Peer
from drivetrain_trainer.runtime.faults import StaleTickError
from drivetrain_trainer.runtime.inference_ring import InferenceRing
from drivetrain_trainer.runtime.ring_words import Command
from drivetrain_trainer.training.phases import PhaseTimeline
from drivetrain_trainer.training.serving import TickServer

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.replay import ReplayRing


class Commits:
    """A replay that notes through which ticks it was asked to commit."""

    size = 0

    def __init__(self) -> None:
        self.ticks: list[int] = []
        self.run: Callable[[], object] = lambda: None
        self._bell = Doorbell()
        self._bell.ring()

    def meanwhile(self, _: int) -> Meanwhile:
        def once() -> None:
            self._bell.collect()
            self.run()

        return Meanwhile(self._bell, once)

    def commit(self, through_tick: int) -> int:
        self.ticks.append(through_tick)
        return 0


class Served:
    """Both ends of a ring in this process, and what the policy was asked."""

    def __init__(self, num_envs: int, capacity: int) -> None:
        peer = Peer(os.getpid(), "self")
        self.ring = InferenceRing.create(num_envs, 2, 1, capacity)
        self.collector = self.ring.collector_port(peer)
        self.commits = Commits()
        self.asked: list[Tensor] = []
        self.server = TickServer(
            self.ring.learner_port(peer),
            cast("ReplayRing", self.commits),
            device=torch.device("cpu"),
            timeout_s=0.01,
            timeline=PhaseTimeline(),
        )

    def request(self, tick: int, group: int) -> None:
        rows = self.ring.group_rows(group)
        observation = torch.arange(self.ring.num_envs)[rows, None] + 100.0 * tick
        size = self.ring.group_size(group)
        self.collector.request(tick, observation.expand(size, 2), torch.zeros(size), group=group)

    def act(self, observation: Tensor) -> Tensor:
        assert observation.shape == (self.ring.num_envs, 2)
        self.asked.append(observation.clone())
        return observation[:, :1] + 0.5

    def serve(self, tick: int) -> None:
        self.server.serve(tick, self.act, epoch=tick, command=Command.STEP)

    def take(self, tick: int, group: int) -> list[float]:
        return self.collector.await_response(tick, 0.0, group=group).action[:, 0].tolist()

    def expected(self, tick: int, group: int) -> list[float]:
        rows = range(self.ring.num_envs)[self.ring.group_rows(group)]
        return [100.0 * tick + row + 0.5 for row in rows]


@given(num_envs=st.integers(1, 9), capacity=st.integers(1, 5))
def test_requests_that_are_there_together_take_one_inference(num_envs: int, capacity: int) -> None:
    served = Served(num_envs, capacity)
    for tick in range(3):
        for group in range(served.ring.groups):
            served.request(tick, group)
        served.serve(tick)
        for group in range(served.ring.groups):
            assert served.take(tick, group) == served.expected(tick, group)
    whole = torch.arange(num_envs)[:, None].expand(num_envs, 2)
    assert [seen.tolist() for seen in served.asked] == [
        (whole + 100.0 * tick).tolist() for tick in range(3)
    ]
    assert served.commits.ticks == [-1, 0, 1]


def test_a_group_is_answered_while_the_next_one_is_still_stepped() -> None:
    served = Served(5, 2)
    served.request(0, 0)
    taken = []

    def meanwhile() -> None:
        """What the collector does while the learner waits for the second request."""
        taken.append(served.take(0, 0))
        assert served.commits.ticks == [], "rows of the tick before are not all there yet"
        served.request(0, 1)

    served.commits.run = meanwhile
    served.serve(0)
    assert taken == [served.expected(0, 0)]
    assert served.take(0, 1) == served.expected(0, 1)
    assert len(served.asked) == 2
    assert served.asked[0][:3].tolist() == [[row, row] for row in (0, 1, 2)]
    assert torch.equal(served.asked[1], served.server.observation)
    assert served.commits.ticks == [-1]


def test_a_request_for_the_next_tick_waits_for_its_turn() -> None:
    """The collector steps the first group and asks on while two others are still inferred."""
    served = Served(3, 3)
    served.request(0, 0)

    def act(observation: Tensor) -> Tensor:
        if not served.asked:
            served.request(0, 1)
            served.request(0, 2)
        elif len(served.asked) == 1:
            assert served.take(0, 0) == [0.5]
            served.request(1, 0)
        return served.act(observation)

    served.server.serve(0, act, epoch=0, command=Command.STEP)
    assert len(served.asked) == 2
    assert served.take(0, 1) == [1.5]
    assert served.take(0, 2) == [2.5]
    served.request(1, 1)
    served.request(1, 2)
    served.serve(1)
    assert [served.take(1, group) for group in range(3)] == [[100.5], [101.5], [102.5]]


def test_at_a_boundary_every_request_is_there_and_none_is_answered() -> None:
    served = Served(4, 2)
    served.request(0, 0)
    served.commits.run = lambda: served.request(0, 1)
    served.server.gather(0)
    assert served.collector.flight().queue_depth == 2
    assert served.commits.ticks == [-1]
    served.server.gather(0)
    served.serve(0)
    assert served.commits.ticks == [-1], "committed once"
    assert [served.take(0, group) for group in range(2)] == [[0.5, 1.5], [2.5, 3.5]]
    assert len(served.asked) == 1


def test_a_request_that_does_not_come_is_a_stale_tick() -> None:
    served = Served(4, 2)
    served.request(0, 0)
    with pytest.raises(StaleTickError, match="tick 0"):
        served.serve(0)
