from __future__ import annotations

import os
import signal
import threading
import time
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.collector_port import CollectorPort
from drivetrain_trainer.runtime.descriptors import Channel
from drivetrain_trainer.runtime.doorbell import Doorbell, Interrupt, Meanwhile, Peer
from drivetrain_trainer.runtime.faults import (
    PeerDiedError,
    ProtocolError,
    StaleTickError,
    StopRequestedError,
)
from drivetrain_trainer.runtime.inference_ring import InferenceRing
from drivetrain_trainer.runtime.learner_port import LearnerPort
from drivetrain_trainer.runtime.ring_words import NO_EPOCH, Command

SOON = 10.0


def ports(num_envs: int = 4, capacity: int = 1) -> tuple[InferenceRing, CollectorPort, LearnerPort]:
    ring = InferenceRing.create(num_envs, 3, 2, capacity)
    peer = Peer(os.getpid(), "self")
    return ring, ring.collector_port(peer), ring.learner_port(peer)


def ask(collector: CollectorPort, tick: int, rows: int, group: int = 0) -> None:
    collector.request(tick, torch.full((rows, 3), float(tick)), torch.ones(rows), group=group)


def poison(ring: InferenceRing) -> None:
    """Whatever is read and was not written after this is NaN."""
    for group in range(ring.groups):
        slot = ring.slot(group)
        for tensor in (slot.observation, slot.done, slot.action):
            tensor.fill_(torch.nan)


def test_a_tick_brings_observations_there_and_actions_back() -> None:
    ring, collector, learner = ports()
    poison(ring)
    observation = torch.arange(12.0).view(4, 3)
    collector.request(0, observation, torch.tensor([True, False, False, True]))
    request = learner.await_request(0, SOON)
    assert torch.equal(request.observation, observation)
    assert request.done.tolist() == [1.0, 0.0, 0.0, 1.0]
    action = torch.arange(8.0).view(4, 2)
    learner.respond(0, 0, action)
    response = collector.await_response(0, SOON)
    assert torch.equal(response.action, action)
    assert (response.epoch, response.command) == (0, Command.STEP)
    assert torch.equal(collector.requested_observation(), observation)


@pytest.mark.parametrize(
    ("num_envs", "capacity", "sizes"),
    [(4, 1, [4]), (5, 2, [3, 2]), (7, 4, [2, 2, 2, 1]), (2, 16, [1, 1]), (1, 3, [1])],
)
def test_groups_share_the_environments_evenly(
    num_envs: int, capacity: int, sizes: list[int]
) -> None:
    ring = InferenceRing.create(num_envs, 3, 2, capacity)
    assert [ring.group_size(group) for group in range(ring.groups)] == sizes
    rows = [row for group in range(ring.groups) for row in range(num_envs)[ring.group_rows(group)]]
    assert rows == list(range(num_envs))


@given(
    capacity=st.integers(1, 4),
    num_envs=st.integers(1, 6),
    schedule=st.lists(st.booleans(), min_size=1, max_size=60),
    updates=st.lists(st.integers(0, 2), min_size=1, max_size=60),
)
def test_any_schedule_of_both_sides_keeps_every_tick_whole(
    capacity: int, num_envs: int, schedule: list[bool], updates: list[int]
) -> None:
    """Each side runs as far as the other lets it; True gives the collector the next turn."""
    ring, collector, learner = ports(num_envs, capacity)
    sizes = [ring.group_size(group) for group in range(ring.groups)]
    waiting: list[tuple[int, int]] = []  # requests published and not served
    answered: list[tuple[int, int]] = []  # responses published and not taken
    asked_for = dict.fromkeys(range(ring.groups), 0)
    served = 0
    epochs = list(accumulate(updates * len(schedule)))
    for group in range(ring.groups):
        ask(collector, 0, sizes[group], group)
        waiting.append((0, group))
    for turn in schedule:
        if turn and answered:
            tick, group = answered.pop(0)
            response = collector.await_response(tick, 0.0, group=group)
            assert response.action.tolist() == [[tick + 0.5, group]] * sizes[group]
            assert response.epoch == epochs[tick]
            ring.slot(group).observation.fill_(torch.nan)
            asked_for[group] += 1
            ask(collector, asked_for[group], sizes[group], group)
            waiting.append((asked_for[group], group))
        elif not turn and waiting:
            tick, group = waiting.pop(0)
            assert (tick, group) == divmod(served, ring.groups)
            served += 1
            request = learner.await_request(tick, 0.0, group=group)
            assert request.observation.tolist() == [[tick] * 3] * sizes[group]
            ring.slot(group).action.fill_(torch.nan)
            action = torch.tensor([[tick + 0.5, float(group)]]).expand(sizes[group], 2)
            learner.respond(tick, epochs[tick], action, group=group)
            answered.append((tick, group))
        flight = collector.flight()
        assert flight.queue_depth == len(waiting)
        assert flight.action_backlog == len(answered)
        assert flight.in_flight == len(waiting) + len(answered) <= ring.groups
        assert flight.max_in_flight <= ring.groups
        assert flight.publication_lag in (0, 1)


def test_the_ring_goes_on_beyond_any_counters_small_range() -> None:
    first = 2**40
    _, collector, learner = ports()
    for tick in range(first, first + 70):
        ask(collector, tick, 4)
        learner.await_request(tick, SOON)
        learner.respond(tick, tick, torch.zeros(4, 2))
        assert collector.await_response(tick, SOON).epoch == tick


def test_a_request_for_another_tick_is_refused() -> None:
    _, collector, learner = ports()
    ask(collector, 1, 4)
    with pytest.raises(ProtocolError, match=r"expected \(0, -1\), found \(1, -1\)"):
        learner.await_request(0, SOON)


def test_a_request_after_another_policy_is_refused() -> None:
    ring, collector, learner = ports()
    ask(collector, 0, 4)
    learner.await_request(0, SOON)
    learner.respond(0, 5, torch.zeros(4, 2))
    ring.slot(0).response[1] = 6  # a slot overwritten under the collector
    collector.await_response(0, SOON)
    ask(collector, 1, 4)
    with pytest.raises(ProtocolError, match=r"expected \(1, 5\), found \(1, 6\)"):
        learner.await_request(1, SOON)


def test_a_response_for_another_tick_is_refused() -> None:
    _, collector, learner = ports()
    ask(collector, 0, 4)
    learner.await_request(0, SOON)
    learner.respond(1, 0, torch.zeros(4, 2))
    with pytest.raises(ProtocolError, match="tick: expected 0, found 1"):
        collector.await_response(0, SOON)


def test_a_response_of_an_older_policy_is_refused() -> None:
    _, collector, learner = ports()
    for tick, epoch in ((0, 3), (1, 2)):
        ask(collector, tick, 4)
        learner.await_request(tick, SOON)
        learner.respond(tick, epoch, torch.zeros(4, 2))
        if tick == 0:
            collector.await_response(0, SOON)
    with pytest.raises(ProtocolError, match="epoch: expected at least 3, found 2"):
        collector.await_response(1, SOON)


def test_groups_of_a_tick_must_have_one_policy() -> None:
    ring, collector, learner = ports(capacity=2)
    for group in range(2):
        ask(collector, 0, ring.group_size(group), group)
    for group in range(2):
        learner.await_request(0, SOON, group=group)
        learner.respond(0, group, torch.zeros(2, 2), group=group)
    collector.await_response(0, SOON, group=0)
    with pytest.raises(ProtocolError, match="group 1, tick 0: epoch: expected 0, found 1"):
        collector.await_response(0, SOON, group=1)


def test_a_command_comes_with_its_response_and_only_a_stop_without_actions() -> None:
    _, collector, learner = ports()
    ask(collector, 0, 4)
    learner.await_request(0, SOON)
    learner.respond(0, 0, torch.zeros(4, 2), Command.SNAPSHOT)
    assert collector.await_response(0, SOON).command is Command.SNAPSHOT
    ask(collector, 1, 4)
    learner.await_request(1, SOON)
    with pytest.raises(ValueError, match="SNAPSHOT needs actions"):
        learner.respond(1, 0, None, Command.SNAPSHOT)
    learner.respond(1, 0, None, Command.STOP)
    assert collector.await_response(1, SOON).command is Command.STOP


def test_actions_may_be_placed_before_they_are_published() -> None:
    _, collector, learner = ports()
    ask(collector, 0, 4)
    learner.await_request(0, SOON)
    learner.place(torch.full((4, 2), 3.0))
    learner.respond(0, 0, None)
    response = collector.await_response(0, SOON)
    assert response.command is Command.STEP
    assert response.action.eq(3.0).all()
    ask(collector, 1, 4)
    learner.await_request(1, SOON)
    with pytest.raises(ValueError, match="STEP needs actions"):
        learner.respond(1, 0, None)


def test_actions_may_come_in_another_layout_and_type() -> None:
    _, collector, learner = ports()
    ask(collector, 0, 4)
    learner.await_request(0, SOON)
    action = torch.arange(8, dtype=torch.bfloat16).view(2, 4).T
    learner.respond(0, 0, action)
    assert torch.equal(collector.await_response(0, SOON).action, action.float())


def test_actions_of_another_shape_are_refused() -> None:
    _, _, learner = ports()
    with pytest.raises(RuntimeError, match="size"):
        learner.respond(0, 0, torch.zeros(3, 2))


def test_a_wait_without_an_answer_is_a_stale_tick() -> None:
    _, collector, learner = ports()
    with pytest.raises(StaleTickError, match=r"tick 7: waited 0.0 s for the collector") as caught:
        learner.await_request(7, 0.001)
    assert (caught.value.tick, caught.value.waited_s) == (7, 0.001)
    with pytest.raises(StaleTickError, match="for the learner's actions"):
        collector.await_response(7, 0.001)


def test_the_learner_can_be_interrupted_and_go_on() -> None:
    _, collector, learner = ports()
    interrupt = Interrupt()
    threading.Timer(0.01, interrupt.set).start()
    with pytest.raises(StopRequestedError):
        learner.await_request(0, SOON, interrupt=interrupt)
    ask(collector, 0, 4)
    assert learner.await_request(0, SOON).done.tolist() == [1.0] * 4


def test_the_learner_works_meanwhile() -> None:
    _, collector, learner = ports()
    pressure = Doorbell()
    pressure.ring()

    def relieve() -> None:
        pressure.collect()
        ask(collector, 0, 4)

    learner.await_request(0, SOON, meanwhile=Meanwhile(pressure, relieve))


def test_a_stop_reaches_a_blocked_collector_and_one_that_comes_later() -> None:
    _, collector, learner = ports()
    ask(collector, 0, 4)
    threading.Timer(0.01, learner.stop).start()
    assert collector.await_response(0, SOON).command is Command.STOP
    assert collector.await_response(0, SOON).command is Command.STOP


def test_before_the_first_response_there_is_no_epoch() -> None:
    ring, collector, _ = ports()
    ask(collector, 0, 4)
    assert ring.slot(0).request[1] == NO_EPOCH


@pytest.mark.parametrize("name", ["num_envs", "observation_dim", "action_dim", "capacity"])
def test_sizes_below_one_are_refused(name: str) -> None:
    sizes = {"num_envs": 4, "observation_dim": 3, "action_dim": 2, "capacity": 1, name: 0}
    with pytest.raises(ValueError, match=f"{name} 0, at least 1"):
        InferenceRing.create(**sizes)


@pytest.mark.parametrize("capacity", [1, 4, 16])
def test_the_slots_have_the_budgets_size_whatever_their_number(capacity: int) -> None:
    ring = InferenceRing.create(64, 17, 6, capacity)
    exact = 64 * (17 + 1 + 6) * 4
    assert exact <= ring.host_bytes <= exact + 4096


def test_requests_that_are_there_are_counted_without_waiting() -> None:
    ring, collector, learner = ports(num_envs=4, capacity=3)
    assert learner.arrived() == 0
    for group in range(2):
        ask(collector, 0, ring.group_size(group), group)
    assert learner.arrived() == 2
    learner.await_request(0, SOON, group=0)
    assert learner.arrived() == 1
    ask(collector, 0, ring.group_size(2), 2)
    assert learner.arrived() == 2


def test_a_sent_ring_is_the_same_memory() -> None:
    ring, collector, _ = ports()
    first, second = Channel.pair()
    with first, second:
        first.send(ring)
        received: InferenceRing = second.receive()
    ask(collector, 0, 4)
    request = received.learner_port(Peer(os.getpid(), "self")).await_request(0, SOON)
    assert torch.equal(request.observation, torch.zeros(4, 3))
    ring.close()
    ring.close()


def spawn(target: str, ring: InferenceRing, *more: object) -> ChildProcess:
    child = ChildProcess.spawn(f"ring_children:{target}", target)
    child.channel.send((ring, *more) if more else ring)
    assert child.receive() == "ready", child.failure
    return child


def round_trips(port: CollectorPort, ticks: int) -> Tensor:
    observation, done = torch.zeros(64, 17), torch.zeros(64)
    spent = torch.empty(ticks)
    for tick in range(ticks):
        started = time.perf_counter()
        port.request(tick, observation.fill_(float(tick)), done)
        response = port.await_response(tick, SOON)
        spent[tick] = time.perf_counter() - started
        assert bool((response.action == float(tick)).all())
    return spent * 1e6


def test_two_processes_hand_over_and_notice_each_others_death() -> None:
    ring = InferenceRing.create(64, 17, 6, 1)
    ticks = 2_000
    with spawn("answer_requests", ring, ticks) as learner:
        port = ring.collector_port(learner.peer)
        spent = round_trips(port, ticks)
        print(
            f"\nrequest -> response: median {spent.median():.0f} us,"
            f" p99 {spent.quantile(0.99):.0f} us"
        )
        threading.Timer(0.02, os.kill, (learner.pid, signal.SIGKILL)).start()
        started = time.monotonic()
        with pytest.raises(PeerDiedError, match="killed by SIGKILL"):
            port.await_response(ticks)
        assert time.monotonic() - started < 2.0


@pytest.mark.parametrize("capacity", [1, 3])
def test_a_collector_killed_in_any_tick_is_noticed_and_none_is_torn(capacity: int) -> None:
    ring = InferenceRing.create(6, 3, 2, capacity)
    with spawn("request_actions", ring) as collector:
        port = ring.learner_port(collector.peer)
        threading.Timer(0.05, os.kill, (collector.pid, signal.SIGKILL)).start()
        with pytest.raises(PeerDiedError):  # noqa: PT012  # the loop is what is killed
            for tick in range(10**9):
                for group in range(port.groups):
                    request = port.await_request(tick, None, group=group)
                    assert bool((request.observation == float(tick)).all())
                    action = torch.full((ring.group_size(group), 2), float(tick))
                    port.respond(tick, tick, action, group=group)


def test_a_blocked_collector_is_stopped_from_another_process() -> None:
    ring = InferenceRing.create(4, 3, 2, 2)
    with spawn("request_actions", ring) as collector:
        port = ring.learner_port(collector.peer)
        port.await_request(0, SOON)
        port.stop()
        assert collector.wait(SOON)
        assert collector.exitcode == 0
