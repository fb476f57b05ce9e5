from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drivetrain_operator.queue import KeyedQueue, QueueClosedError


@dataclass
class FakeTimer:
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class FakeClock:
    """Time that a test moves; callbacks run in the order in which they are due."""

    now: float = 100.0
    _due: list[tuple[float, int, FakeTimer, Callable[[], None]]] = field(default_factory=list)
    _order: Any = field(default_factory=itertools.count)

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None], /) -> FakeTimer:
        timer = FakeTimer()
        heapq.heappush(self._due, (when, next(self._order), timer, callback))
        return timer

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            when, _, timer, callback = heapq.heappop(self._due)
            self.now = max(self.now, when)
            if not timer.cancelled:
                callback()
        self.now = end


def run(story: Callable[[KeyedQueue[str], FakeClock], Coroutine[Any, Any, None]]) -> None:
    clock = FakeClock()
    asyncio.run(story(KeyedQueue(first_delay=1.0, max_delay=60.0, clock=clock), clock))


async def waiting(queue: KeyedQueue[str]) -> asyncio.Task[str]:
    """A worker that waits in `get` by now."""
    task = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    return task


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_keys_come_in_order_and_once() -> None:
    async def story(queue: KeyedQueue[str], _: FakeClock) -> None:
        for key in ("a", "b", "a", "c", "b"):
            queue.add(key)
        assert len(queue) == 3
        assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]

    run(story)


def test_a_worker_waits_for_a_key() -> None:
    async def story(queue: KeyedQueue[str], _: FakeClock) -> None:
        worker = await waiting(queue)
        assert not worker.done()
        queue.add("a")
        assert await worker == "a"

    run(story)


def test_a_key_added_while_it_is_worked_on_comes_again_afterwards_and_not_before() -> None:
    async def story(queue: KeyedQueue[str], _: FakeClock) -> None:
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("a")
        queue.add("a")
        assert len(queue) == 1
        other = await waiting(queue)
        assert not other.done()
        queue.done("a")
        assert await other == "a"
        queue.done("a")
        assert len(queue) == 0

    run(story)


def test_the_earliest_of_several_delays_wins() -> None:
    async def story(queue: KeyedQueue[str], clock: FakeClock) -> None:
        queue.add("a", 10)
        queue.add("a", 5)
        queue.add("a", 20)
        assert queue.delayed == 1
        clock.advance(4.9)
        assert len(queue) == 0
        clock.advance(0.1)
        assert len(queue) == 1
        assert await queue.get() == "a"
        queue.done("a")
        clock.advance(100)
        assert (len(queue), queue.delayed) == (0, 0)

    run(story)


def test_now_covers_later() -> None:
    async def story(queue: KeyedQueue[str], clock: FakeClock) -> None:
        queue.add("a", 10)
        queue.add("a")
        assert (len(queue), queue.delayed) == (1, 0)
        queue.add("a", 3)
        assert queue.delayed == 0
        assert await queue.get() == "a"
        queue.done("a")
        clock.advance(100)
        assert len(queue) == 0

    run(story)


def test_a_delay_asked_for_during_the_work_outlives_it() -> None:
    async def story(queue: KeyedQueue[str], clock: FakeClock) -> None:
        queue.add("a")
        await queue.get()
        queue.add("a", 5)
        queue.done("a")
        assert len(queue) == 0
        clock.advance(5)
        assert await queue.get() == "a"
        queue.add("a", 1)
        clock.advance(1)  # due while it is worked on
        assert len(queue) == 1
        queue.done("a")
        assert await queue.get() == "a"

    run(story)


def test_the_back_off_doubles_to_its_limit_and_is_forgotten_on_success() -> None:
    async def story(queue: KeyedQueue[str], clock: FakeClock) -> None:
        waits = []
        for _ in range(9):
            queue.add("a")
            await queue.get()
            waits.append(queue.retry("a"))
            queue.done("a")
            clock.advance(60)
            assert await queue.get() == "a"
            queue.done("a")
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
        assert (queue.failures("a"), queue.failures("b")) == (9, 0)
        assert queue.retry("b") == 1
        queue.forget("a")
        queue.forget("never seen")
        assert queue.retry("a") == 1

    run(story)


def test_a_change_cuts_the_back_off_short() -> None:
    async def story(queue: KeyedQueue[str], _: FakeClock) -> None:
        queue.add("a")
        await queue.get()
        queue.retry("a")
        queue.done("a")
        queue.add("a")
        assert await queue.get() == "a"
        assert queue.failures("a") == 1

    run(story)


def test_a_very_long_row_of_failures_still_waits_no_longer_than_the_limit() -> None:
    async def story(queue: KeyedQueue[str], _: FakeClock) -> None:
        for _ in range(5000):
            wait = queue.retry("a")
        assert wait == 60

    run(story)


def test_ages_are_of_the_longest_wait_and_the_longest_work() -> None:
    async def story(queue: KeyedQueue[str], clock: FakeClock) -> None:
        assert (queue.oldest_wait(), queue.oldest_work()) == (0, 0)
        queue.add("a")
        clock.advance(2)
        queue.add("b")
        clock.advance(3)
        assert queue.oldest_wait() == 5
        await queue.get()
        assert (queue.oldest_wait(), queue.working) == (3, 1)
        clock.advance(7)
        queue.add("a")
        clock.advance(1)
        assert (queue.oldest_wait(), queue.oldest_work()) == (11, 8)
        await queue.get()
        assert queue.oldest_wait() == 1  # dirty for so long
        queue.done("a")
        assert (queue.oldest_wait(), queue.oldest_work()) == (1, 0)

    run(story)


def test_closing_ends_every_wait_and_drops_every_key() -> None:
    async def story(queue: KeyedQueue[str], clock: FakeClock) -> None:
        queue.add("a")
        await queue.get()
        queue.add("a")
        workers = [await waiting(queue) for _ in range(3)]
        queue.add("later", 5)
        queue.close()
        for worker in workers:
            with pytest.raises(QueueClosedError):
                await worker
        queue.done("a")
        queue.add("b")
        clock.advance(10)
        assert (len(queue), queue.delayed) == (0, 0)
        with pytest.raises(QueueClosedError):
            await queue.get()
        queue.close()

    run(story)


def test_a_cancelled_worker_takes_no_key_with_it() -> None:
    async def story(queue: KeyedQueue[str], _: FakeClock) -> None:
        first, second = await waiting(queue), await waiting(queue)
        queue.add("a")  # wakes the first, which is cancelled before it runs
        first.cancel()
        await turns()
        assert first.cancelled()
        assert await asyncio.wait_for(second, 1) == "a"
        third = await waiting(queue)
        third.cancel()
        await turns()
        queue.add("b")
        assert await queue.get() == "b"

    run(story)


def test_no_key_is_done_that_was_not_given_out() -> None:
    async def story(queue: KeyedQueue[str], _: FakeClock) -> None:
        queue.add("a")
        with pytest.raises(KeyError):
            queue.done("a")

    run(story)


@pytest.mark.parametrize(("first", "most"), [(0, 1), (-1, 1), (2, 1)])
def test_delays_that_make_no_sense_are_refused(first: float, most: float) -> None:
    with pytest.raises(ValueError, match="first_delay must be above 0 and at most max_delay"):
        KeyedQueue(first_delay=first, max_delay=most)


def test_the_running_loop_is_the_clock_where_none_is_given() -> None:
    async def story() -> None:
        queue: KeyedQueue[str] = KeyedQueue()
        queue.add("a", 0.001)
        assert await asyncio.wait_for(queue.get(), 5) == "a"

    asyncio.run(story())


KEYS = st.sampled_from("abc")


class QueueMachine(RuleBasedStateMachine):
    """Against a model: which keys must come, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.queue: KeyedQueue[str] = KeyedQueue(first_delay=1.0, max_delay=8.0, clock=self.clock)
        self.ready: list[str] = []
        self.dirty: list[str] = []
        self.later: dict[str, float] = {}
        self.working: set[str] = set()
        self.failures: dict[str, int] = {}

    def _due(self, key: str) -> None:
        self.later.pop(key, None)
        if key in self.working:
            if key not in self.dirty:
                self.dirty.append(key)
        elif key not in self.ready:
            self.ready.append(key)

    def _add(self, key: str, delay: float) -> None:
        if key in self.ready or key in self.dirty:
            return
        if delay == 0:
            self._due(key)
        else:
            due = self.clock.now + delay
            if due < self.later.get(key, due + 1):
                self.later.pop(key, None)  # of two that are due at once, the first asked for
                self.later[key] = due

    @rule(key=KEYS, delay=st.sampled_from([0, 0, 1, 2, 5]))
    def add(self, key: str, delay: float) -> None:
        self.queue.add(key, delay)
        self._add(key, delay)

    @precondition(lambda self: self.ready)
    @rule()
    def get(self) -> None:
        key = asyncio.run(asyncio.wait_for(self.queue.get(), 1))
        assert key == self.ready.pop(0)
        assert key not in self.working
        self.working.add(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data: st.DataObject, fails: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        if fails:
            count = self.failures[key] = self.failures.get(key, 0) + 1
            wait = min(2.0 ** (count - 1), 8.0)
            assert self.queue.retry(key) == wait
            self._add(key, wait)
        else:
            self.queue.forget(key)
            self.failures.pop(key, None)
        self.queue.done(key)
        self.working.remove(key)
        if key in self.dirty:
            self.dirty.remove(key)
            self.ready.append(key)

    @rule(seconds=st.sampled_from([0.5, 1, 3]))
    def time_passes(self, seconds: float) -> None:
        end = self.clock.now + seconds
        for key, _ in sorted(self.later.items(), key=lambda item: item[1]):
            if self.later[key] <= end:
                self._due(key)
        self.clock.advance(seconds)

    @invariant()
    def the_queue_is_as_the_model(self) -> None:
        assert len(self.queue) == len(self.ready) + len(self.dirty)
        assert self.queue.delayed == len(self.later)
        assert self.queue.working == len(self.working)
        assert self.queue.oldest_wait() >= 0
        for key in "abc":
            assert self.queue.failures(key) == self.failures.get(key, 0)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
