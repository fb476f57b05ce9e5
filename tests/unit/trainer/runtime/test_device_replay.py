"""The device ring against a device whose copies and gathers come late, fail, or never come."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lazy_device import SOON, LazyStream
from replay_rows import LAYOUT, PlainList, attached, line_to, numbered, numbers

from drivetrain_trainer.runtime import replay_worker
from drivetrain_trainer.runtime.device_replay import DeviceReplay
from drivetrain_trainer.runtime.faults import ProtocolError, StaleTickError
from drivetrain_trainer.runtime.ingress import ReplayIngress
from drivetrain_trainer.runtime.ingress_producer import IngressProducer
from drivetrain_trainer.runtime.ingress_words import WriteResult
from drivetrain_trainer.runtime.replay import CpuReplay, ReplayRing
from drivetrain_trainer.runtime.replay_worker import PATIENCE_S, THREAD_NAME
from drivetrain_trainer.tracing import FileTracer, Role, TickFlow, TraceSettings
from drivetrain_trainer.tracing.reader import read
from drivetrain_trainer.tracing.summary import summarize
from drivetrain_trainer.tracing.validate import validate

HOST = torch.device("cpu")


def poisoned(
    stream: LazyStream, *, rows: int = 100, seed: int = 0, patience_s: float = PATIENCE_S
) -> DeviceReplay:
    ring = DeviceReplay(LAYOUT, rows, seed, device=HOST, stream=stream, patience_s=patience_s)
    ring._worker._rows.fill_(torch.nan)
    return ring


@dataclass
class Device:
    ring: DeviceReplay
    stream: LazyStream
    ingress: ReplayIngress
    producer: IngressProducer


@pytest.fixture
def device() -> Iterator[Device]:
    """A ring with a line of one slot of four rows."""
    stream = LazyStream()
    ring = poisoned(stream)
    ingress, producer = line_to(ring, depth=1)
    yield Device(ring, stream, ingress, producer)
    stream.gate.set()
    stream.finish_learner()
    ring.close()


@dataclass(frozen=True)
class Step:
    """One tick of a learner, with everything that may come between."""

    rows: int
    announced: int | None
    """Iteration that is announced before its rows are there, from the one that is drawn."""
    meanwhile: bool
    announced_late: bool
    committed: bool
    appended: int
    drawn: int
    stored: bool


STEPS = st.lists(
    st.builds(
        Step,
        rows=st.integers(0, 8),
        announced=st.none() | st.integers(0, 1),
        meanwhile=st.booleans(),
        announced_late=st.booleans(),
        committed=st.booleans(),
        appended=st.integers(0, 3),
        drawn=st.integers(0, 2),
        stored=st.booleans(),
    ),
    max_size=8,
)


def follow(ring: ReplayRing, model: PlainList, steps: list[Step]) -> None:
    """Have a ring do the steps; all it shows is what the list says."""
    ingress, producer = line_to(ring, depth=16)
    written, iteration, shape = 0, 0, (2, 3)
    held, expected = None, [0]
    for tick, step in enumerate(steps):
        iteration += 1
        if step.announced is not None:
            ring.prefetch(iteration + step.announced, *shape, through_tick=tick)
        producer.write(numbered(written, step.rows), tick)
        model.append(range(written, written + step.rows))
        written += step.rows
        if step.meanwhile and (meanwhile := ring.meanwhile(tick)) is not None:
            meanwhile.run()
        if step.announced_late:
            ring.prefetch(iteration, *shape, through_tick=tick)
        assert held is None or numbers(held) == expected  # whatever was gathered since
        assert ring.commit(tick) == len(model.held)
        ingress.slots().fill_(torch.nan)  # no copy may still be to come
        if step.appended:
            ring.append(numbered(written, step.appended))
            model.append(range(written, written + step.appended))
            written += step.appended
        if step.committed:
            ring.commit(tick)
        assert ring.size == len(model.held)
        for _ in range(step.drawn if model.held else 0):
            held = ring.sample(iteration, *shape)
            expected = model.draw(iteration, 6)
            assert numbers(held) == expected
            iteration += 1
        if step.stored:
            state = ring.state_dict()
            assert state["rows"][:, 0].tolist() == model.placed()
            ring.load_state_dict(state)


@settings(deadline=None, max_examples=60)
@given(
    capacity=st.integers(1, 12),
    steps=STEPS,
    eager=st.one_of(st.none(), st.lists(st.booleans(), min_size=1, max_size=20)),
)
def test_any_order_of_calls_shows_what_a_plain_list_does(
    capacity: int, steps: list[Step], eager: list[bool] | None
) -> None:
    """`eager` says, in turns, whether the device does at once what it is given; None is a CPU."""
    model = PlainList(capacity, seed=7)
    if eager is None:
        follow(CpuReplay(LAYOUT, capacity, 7), model, steps)
        return
    turns = itertools.cycle(eager)
    ring = poisoned(LazyStream(lambda: next(turns)), rows=capacity, seed=7)
    try:
        follow(ring, model, steps)
    finally:
        ring.close()


def test_a_late_copy_holds_back_the_rows_and_the_slot_they_came_in(device: Device) -> None:
    ring, stream = device.ring, device.stream
    stream.gate.clear()
    device.producer.write(numbered(0, 4), 0)
    ring.prefetch(0, 1, 8, through_tick=0)
    assert stream.reached.wait(SOON)  # the thread has issued the copy, and waits for it
    assert ring.size == 0
    assert ring._worker._position.size == 0
    assert device.ingress.counters().release_sequence == 0
    assert device.producer.reserve(waiting=False) is WriteResult.FULL
    stream.gate.set()
    assert ring.commit(0) == 4
    assert device.ingress.counters().release_sequence == 1
    assert device.producer.reserve(waiting=False) == 0
    assert set(numbers(ring.sample(0, 1, 8))) <= {0, 1, 2, 3}


def test_a_batch_sees_no_row_that_came_after_its_tick(device: Device) -> None:
    """The gather of tick 0 is done by the device only after the rows of tick 1 are in."""
    ring, stream = device.ring, device.stream
    device.producer.write(numbered(0, 4), 0)
    ring.commit(0)
    ring.prefetch(3, 4, 8, through_tick=0)
    ring.commit(0)
    announced = ring._announced
    assert announced is not None
    gathered = announced.done.result(SOON).gathered
    assert gathered is not None
    device.producer.write(numbered(4, 4), 1)
    assert ring.commit(1) == 8
    assert stream.log.index("gather") < len(stream.log) - stream.log[::-1].index("copy")
    assert set(gathered.rows[:, 0].tolist()) <= {0.0, 1.0, 2.0, 3.0}
    # The announcement is void by now: a sample sees what is visible.
    expected = PlainList(100, 0)
    expected.append(range(8))
    assert numbers(ring.sample(3, 4, 8)) == expected.draw(3, 32)


def test_a_device_that_hangs_is_told_in_bounded_time_and_keeps_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_worker, "CLOSE_TIMEOUT_S", 0.02)
    stream = LazyStream()
    ring = poisoned(stream, patience_s=0.02)
    producer = attached(ring)
    stream.gate.clear()
    producer.write(numbered(0, 4), 0)
    with pytest.raises(StaleTickError, match=r"tick 0: waited .* for the device's replay thread"):
        ring.commit(0)
    assert ring.size == 0
    assert stream.reached.wait(SOON)
    with pytest.raises(TimeoutError, match="replay_device_sync still waits for cpu"):
        ring.close()
    assert stream.pinned  # a copy from it may still be under way
    monkeypatch.setattr(replay_worker, "CLOSE_TIMEOUT_S", SOON)
    stream.gate.set()
    ring.close()
    assert not stream.pinned


class EndsAtTheLimit(Future[replay_worker.Outcome]):
    """An order that ends in the moment in which the wait for it does."""

    def result(self, timeout: float | None = None) -> replay_worker.Outcome:
        if not self.done():
            self.set_result(replay_worker.Outcome(7, None))
            raise TimeoutError
        return super().result(timeout)


def test_an_order_that_ends_as_the_patience_does_has_ended() -> None:
    ring = poisoned(LazyStream())
    assert ring._worker.result(EndsAtTheLimit(), 0).size == 7
    ring.close()


def test_a_copy_that_fails_shows_nothing_then_or_later(device: Device) -> None:
    """The device works again afterwards; what it had to do before is not known to be done."""
    ring, stream = device.ring, device.stream
    stream.error = RuntimeError("an illegal memory access was encountered")
    device.producer.write(numbered(0, 4), 0)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        ring.commit(0)
    assert stream.error is None
    for _ in range(2):
        with pytest.raises(RuntimeError, match="illegal memory access"):
            ring.sample(0, 1, 1)
    assert ring.size == 0
    assert device.ingress.counters().release_sequence == 0


def test_the_first_error_is_the_one_that_is_told(device: Device) -> None:
    """Where nobody waited for the order that failed."""
    ring, stream = device.ring, device.stream
    stream.error = RuntimeError("first")
    device.producer.write(numbered(0, 1), 0)
    ring.meanwhile(0)
    ring.prefetch(0, 1, 1, through_tick=1)
    with pytest.raises(RuntimeError, match="first"):
        ring.commit(1)


def test_a_broken_line_breaks_every_later_order(device: Device) -> None:
    ring = device.ring
    device.producer.write(numbered(0, 1), 0, last=False)
    device.producer.flush()
    ring.meanwhile(0)
    device.producer.write(numbered(1, 1), 1)
    for call in (lambda: ring.commit(0), ring.state_dict):
        with pytest.raises(ProtocolError, match="before the last is whole"):
            call()


def test_a_slot_in_use_is_left_alone_until_the_learners_work_on_it_is_done(
    device: Device,
) -> None:
    ring, stream = device.ring, device.stream
    ring.append(numbered(0, 10))
    first = numbers(ring.sample(0, 1, 4))
    second = ring.sample(1, 1, 4)
    stream.learner_gate.clear()  # an update that reads the first batch is under way
    ring.prefetch(2, 1, 4, through_tick=-1)
    announced = ring._announced
    assert announced is not None
    gathered = announced.done.result(SOON).gathered  # the thread has issued it, and goes on
    assert gathered is not None
    assert gathered.rows[:, 0].tolist() == first
    assert not gathered.ready.passed.is_set()  # type: ignore[attr-defined]  # the stand-in's event
    before = numbers(second)
    stream.finish_learner()
    third = ring.sample(2, 1, 4)
    assert stream.log[-3:] == ["wait", "gather", "event"]
    assert third.reward.data_ptr() == gathered.rows[:, LAYOUT.observation_dim + 1].data_ptr()
    assert numbers(second) == before


def test_no_announcement_touches_the_batch_that_was_given_out(device: Device) -> None:
    ring = device.ring
    ring.append(numbered(0, 10))
    hot = ring.sample(0, 1, 4)
    before = numbers(hot)
    for iteration in (1, 2, 3):  # each takes the place of the one before
        ring.prefetch(iteration, 1, 4, through_tick=-1)
    ring.prefetch(4, 1, 5, through_tick=-1)  # of another size
    cold = ring.sample(9, 1, 4)  # and another than was announced
    assert numbers(hot) == before
    assert cold.reward.data_ptr() != hot.reward.data_ptr()


def test_an_announcement_made_while_the_ring_was_empty_does_not_hide_rows(device: Device) -> None:
    ring = device.ring
    ring.prefetch(0, 1, 4, through_tick=-1)
    ring.append(numbered(0, 1))
    assert numbers(ring.sample(0, 1, 4)) == [0, 0, 0, 0]


def test_what_the_learner_issued_before_is_done_before_the_rings_memory_is_written() -> None:
    """The memory may have been the learner's a moment ago."""
    stream = LazyStream(lambda: True)
    ring = DeviceReplay(LAYOUT, 10, 0, device=HOST, stream=stream)
    ring.append(numbered(0, 1))
    assert stream.log == ["wait", "copy", "event"]
    ring.close()


def test_rows_on_their_way_are_not_counted(device: Device) -> None:
    ring = device.ring
    device.producer.write(numbered(0, 4), 0)
    ring.prefetch(0, 1, 4, through_tick=0)
    announced = ring._announced
    assert announced is not None
    announced.done.result(SOON)
    assert ring.size == 0  # they are there, and it does not depend on how fast the thread was
    assert ring.commit(0) == ring.size == 4


def test_a_closed_ring_takes_no_orders() -> None:
    ring = poisoned(LazyStream())
    ring.close()
    with pytest.raises(RuntimeError, match="replay ring is closed"):
        ring.prefetch(0, 1, 1, through_tick=-1)


def test_the_device_ring_needs_its_ingress() -> None:
    ring = poisoned(LazyStream())
    with pytest.raises(RuntimeError, match="no ingress"):
        ring.commit(0)
    ring.close()


def test_the_ring_tells_what_it_last_spent_on_submitting(device: Device) -> None:
    assert device.ring.h2d_submit_ms is None
    device.ring.append(numbered(0, 10))
    assert device.ring.h2d_submit_ms is not None
    assert device.ring.h2d_submit_ms > 0.0
    cpu = CpuReplay(LAYOUT, 100, 0)
    cpu.append(numbered(0, 10))
    assert cpu.h2d_submit_ms is None


def test_the_thread_shows_its_work_in_a_trace(tmp_path: Path) -> None:
    tracer = FileTracer(TraceSettings(tmp_path, 0, Role.LEARNER, 1, 10**7))
    ring = DeviceReplay(LAYOUT, 100, 0, device=HOST, stream=LazyStream(), tracer=tracer)
    producer = attached(ring, flow=TickFlow(tracer))
    producer.write(numbered(0, 4), 0)
    ring.prefetch(0, 1, 4, through_tick=0)
    ring.sample(0, 1, 4)
    ring.close()
    tracer.close()
    assert validate([tracer.path]).sound
    track = summarize([tracer.path]).track("rank 0 learner", THREAD_NAME)
    assert track is not None
    assert {name: spent.count for name, spent in track.spans.items()} == {
        "Replay Rows": 1,
        "Ingress Commit": 1,
        "Replay H2D Submit": 1,
        "Replay H2D Wait": 1,
        "Replay Gather Submit": 1,
    }
    assert sum(event.phase == "f" for event in read(tracer.path)) == 1


def test_a_batch_that_was_not_announced_is_gathered_on_demand(device: Device) -> None:
    ring = device.ring
    ring.append(numbered(0, 10))
    expected = numbers(ring.sample(4, 1, 4))
    ring.prefetch(3, 1, 4, through_tick=-1)
    assert numbers(ring.sample(4, 1, 4)) == expected


def test_the_thread_ends_with_the_ring_also_while_it_waits_for_rows() -> None:
    stream = LazyStream()
    ring = poisoned(stream)
    attached(ring)
    assert len(stream.pinned) == 1
    ring.prefetch(0, 1, 4, through_tick=5)
    assert THREAD_NAME in {thread.name for thread in threading.enumerate()}
    ring.close()
    ring.close()
    assert THREAD_NAME not in {thread.name for thread in threading.enumerate()}
    assert not stream.pinned
