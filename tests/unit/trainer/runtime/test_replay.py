"""One suite for the rings of every device; the device ring also runs on the CPU, by a stand-in."""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lazy_device import LazyStream
from replay_rows import LAYOUT, attached, numbered, numbers

from drivetrain_trainer.runtime.device_replay import DeviceReplay
from drivetrain_trainer.runtime.doorbell import Meanwhile
from drivetrain_trainer.runtime.faults import ProtocolError
from drivetrain_trainer.runtime.replay import (
    CpuReplay,
    ReplayRing,
    ReplayStateError,
    make_replay,
)

CUDA = torch.device("cuda", 0)


class Maker(Protocol):
    def __call__(self, rows: int, seed: int = 0) -> ReplayRing: ...


@pytest.fixture(
    params=["cpu", "device", pytest.param("cuda", marks=pytest.mark.gpu)],
)
def make(request: pytest.FixtureRequest) -> Iterator[Maker]:
    made: list[ReplayRing] = []

    def maker(rows: int, seed: int = 0) -> ReplayRing:
        if request.param == "cpu":
            ring: ReplayRing = CpuReplay(LAYOUT, rows, seed)
        elif request.param == "device":
            ring = DeviceReplay(LAYOUT, rows, seed, device=torch.device("cpu"), stream=LazyStream())
        else:
            ring = make_replay(LAYOUT, rows, CUDA, seed)
        made.append(ring)
        return ring

    yield maker
    for ring in made:
        ring.close()


@given(
    capacity=st.integers(1, 12),
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=12),
)
def test_the_ring_holds_exactly_the_newest_rows(capacity: int, sizes: list[int]) -> None:
    ring = CpuReplay(LAYOUT, capacity, seed=0)
    model: deque[int] = deque(maxlen=capacity)
    first = 0
    for size in sizes:
        ring.append(numbered(first, size))
        model.extend(range(first, first + size))
        first += size
        assert ring.size == len(model)
        rows = ring.state_dict()["rows"][:, 0].tolist()
        assert sorted(rows) == list(model)
        start = ring.state_dict()["next"] if ring.size == capacity else 0
        assert rows[start:] + rows[:start] == list(model)


def test_an_empty_ring_gives_no_batch(make: Maker) -> None:
    with pytest.raises(ValueError, match="empty"):
        make(10).sample(0, 1, 1)


def test_a_batch_has_updates_and_rows_in_front(make: Maker) -> None:
    ring = make(10)
    ring.append(numbered(0, 10))
    batch = ring.sample(0, 3, 5)
    assert batch.observation.shape == (3, 5, 2)
    assert batch.action.shape == (3, 5, 1)
    assert batch.done.shape == (3, 5)
    assert set(numbers(batch)) <= set(range(10))


def test_rows_that_were_never_written_are_never_drawn(make: Maker) -> None:
    ring = make(1000)
    ring.append(numbered(0, 3))
    assert set(numbers(ring.sample(0, 4, 100))) == {0, 1, 2}


def test_every_row_is_as_likely(make: Maker) -> None:
    ring = make(10)
    ring.append(numbered(0, 25))
    drawn = torch.tensor(numbers(ring.sample(7, 20, 1000)))
    counts = torch.bincount(drawn, minlength=25)
    assert counts[:15].sum() == 0
    assert bool((counts[15:] > 1_800).all())
    assert bool((counts[15:] < 2_200).all())


def test_a_draw_is_decided_by_seed_and_iteration_alone(make: Maker) -> None:
    first, second, other = make(50, seed=3), make(50, seed=3), make(50, seed=4)
    for ring in (first, second, other):
        ring.append(numbered(0, 50))
    first.sample(0, 2, 8)
    draws = numbers(first.sample(9, 2, 8))
    assert numbers(second.sample(9, 2, 8)) == draws
    assert numbers(second.sample(10, 2, 8)) != draws
    assert numbers(other.sample(9, 2, 8)) != draws
    assert numbers(other.sample(8, 2, 8)) == draws


def test_a_stored_ring_goes_on_bit_for_bit(make: Maker) -> None:
    stored, restored = make(8), make(8)
    stored.append(numbered(0, 11))
    file = io.BytesIO()
    torch.save(stored.state_dict(), file)
    file.seek(0)
    restored.load_state_dict(torch.load(file, weights_only=True))
    for ring in (stored, restored):
        ring.append(numbered(11, 2))
    assert restored.size == stored.size == 8
    assert numbers(restored.sample(1, 2, 16)) == numbers(stored.sample(1, 2, 16))


def test_storing_a_ring_that_is_not_full_stores_its_rows_alone(make: Maker) -> None:
    ring = make(100_000)
    ring.append(numbered(0, 10))
    file = io.BytesIO()
    torch.save(ring.state_dict(), file)
    assert file.tell() < 10_000


@pytest.mark.parametrize(
    ("rows", "width", "message"),
    [(9, 8, "holds 9 rows of width 8; this one 10 of width 8"), (10, 7, "of width 7; this one")],
)
def test_a_ring_of_another_size_is_refused(
    make: Maker, rows: int, width: int, message: str
) -> None:
    state = {"rows": torch.zeros(3, width), "next": 3, "capacity": rows}
    with pytest.raises(ReplayStateError, match=message):
        make(10).load_state_dict(state)


@pytest.mark.parametrize(("size", "following"), [(11, 1), (3, 4), (3, 0), (10, 10), (10, -1)])
def test_a_ring_that_cannot_have_been_is_refused_and_changes_nothing(
    make: Maker, size: int, following: int
) -> None:
    ring = make(10)
    ring.append(numbered(0, 2))
    state = {"rows": torch.zeros(size, LAYOUT.width), "next": following, "capacity": 10}
    with pytest.raises(ReplayStateError, match=f"of 10 rows holds {size}, the next one at"):
        ring.load_state_dict(state)
    assert ring.size == 2
    assert set(numbers(ring.sample(0, 1, 16))) == {0, 1}


def test_a_ring_without_rows_is_refused(make: Maker) -> None:
    with pytest.raises(ValueError, match="0 rows, at least 1"):
        make(0)


def test_a_device_without_a_ring_is_refused() -> None:
    with pytest.raises(ValueError, match="device meta: cpu or cuda"):
        make_replay(LAYOUT, 1, torch.device("meta"), 0)


def test_a_commit_shows_exactly_the_rows_through_its_tick(make: Maker) -> None:
    ring = make(100)
    producer = attached(ring, depth=4)
    assert ring.commit(-1) == 0
    for tick in range(3):
        producer.write(numbered(3 * tick, 3), tick)
    assert ring.commit(0) == 3
    assert set(numbers(ring.sample(0, 1, 64))) == {0, 1, 2}
    assert ring.commit(0) == 3
    assert ring.commit(2) == ring.size == 9


def test_a_commit_waits_for_the_tick_to_be_whole(make: Maker) -> None:
    ring = make(100)
    producer = attached(ring, depth=1, slot_rows=2)
    thread = threading.Thread(target=producer.write, args=(numbered(0, 9), 0))
    thread.start()
    assert ring.commit(0) == 9
    thread.join()


def test_a_broken_line_is_told_by_the_commit(make: Maker) -> None:
    ring = make(100)
    producer = attached(ring)
    producer.write(numbered(0, 1), 0, last=False)
    producer.write(numbered(1, 1), 1)
    with pytest.raises(ProtocolError):
        ring.commit(0)


def serve(meanwhile: Meanwhile | None, until: Callable[[], bool]) -> None:
    while not until():
        if meanwhile is not None:
            meanwhile.run()


def test_meanwhile_makes_room_for_a_vector_larger_than_the_line(make: Maker) -> None:
    ring = make(100)
    producer = attached(ring, depth=1, slot_rows=2)
    thread = threading.Thread(target=producer.write, args=(numbered(0, 9), 0))
    thread.start()
    serve(ring.meanwhile(0), lambda: not thread.is_alive())
    thread.join()
    assert ring.commit(0) == 9


def ring_is_on_cuda(ring: ReplayRing) -> bool:
    ages = ring.sampled_ages()
    assert ages is not None
    return ages.is_cuda


def lockstep(ring: ReplayRing, *, ticks: int, prefetch: bool) -> list[list[int]]:
    """The learner's order of calls, with the rows of a tick written as late as they may be."""
    producer = attached(ring)
    batches = []
    for tick in range(ticks):
        ring.meanwhile(tick - 1)
        ring.commit(tick - 1)
        writer = threading.Thread(target=producer.write, args=(numbered(4 * tick, 4), tick))
        writer.start()  # the collector has its actions
        if tick:
            batches.append(numbers(ring.sample(tick, 2, 16)))
        if prefetch:
            ring.prefetch(tick + 1, 2, 16, through_tick=tick)
        writer.join()
    return batches


def test_every_batch_sees_the_rows_of_earlier_ticks_and_no_others(make: Maker) -> None:
    expected = lockstep(CpuReplay(LAYOUT, 30, seed=5), ticks=12, prefetch=False)
    for tick, batch in enumerate(expected, start=1):
        assert set(batch) <= set(range(max(4 * tick - 30, 0), 4 * tick))
    ring = make(30, seed=5)
    found = lockstep(ring, ticks=12, prefetch=True)
    if not ring_is_on_cuda(ring):  # whose generator has other numbers
        assert found == expected
    for tick, batch in enumerate(found, start=1):
        assert set(batch) <= set(range(max(4 * tick - 30, 0), 4 * tick))


def test_the_ages_of_a_sample_count_the_rows_written_since(make: Maker) -> None:
    ring = make(10)
    assert ring.sampled_ages() is None
    for first in (0, 6, 12, 18):  # 6, then 10 of 12, of 18 and of 24 rows are held
        ring.append(numbered(first, 6))
        drawn = torch.tensor(numbers(ring.sample(first, 2, 16)))
        ring.append(numbered(1000, 0))
        ages = ring.sampled_ages()
        assert ages is not None
        assert torch.equal(ages.cpu(), first + 5 - drawn)
    ring.append(numbered(24, 3))
    later = ring.sampled_ages()
    assert later is not None
    assert torch.equal(later.cpu(), 23 - drawn)  # of what was there when it was drawn


def test_the_cpu_ring_needs_its_ingress() -> None:
    with pytest.raises(RuntimeError, match="no ingress"):
        CpuReplay(LAYOUT, 1, 0).commit(0)


def test_the_state_names_what_it_holds(make: Maker) -> None:
    ring = make(10)
    ring.append(numbered(0, 4))
    state: dict[str, Any] = ring.state_dict()
    assert set(state) == {"rows", "next", "capacity"}
    assert (state["next"], state["capacity"]) == (4, 10)
    assert state["rows"].device.type == "cpu"
