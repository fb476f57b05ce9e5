from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Self

import pytest
import structlog

from drivetrain_operator.cluster.client import Cluster
from drivetrain_operator.cluster.lease import LeaderElection
from drivetrain_operator.wiring.program import Ending, _ends_first, serve
from drivetrain_operator.wiring.settings import OperatorSettings
from drivetrain_operator.wiring.work import DRAIN_SECONDS, _drained, _until

Part = Callable[[list[str]], Coroutine[None, None, None]]


async def works_on(told: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        told.append("ended in its own time")


async def ends(told: list[str]) -> None:
    told.append("ended")


async def fails(told: list[str]) -> None:
    del told
    raise ValueError("broken")


async def fails_when_stopped(told: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        told.append("tried")
        raise ValueError("broken on the way out")


@pytest.mark.parametrize(
    ("part", "stop", "asked", "told", "logged"),
    [
        (works_on, True, True, ["ended in its own time"], []),
        (ends, False, False, ["ended"], []),
        (fails, False, False, [], ["the operator failed"]),
        (fails_when_stopped, True, False, ["tried"], ["the operator failed"]),
    ],
)
def test_what_ends_first(
    part: Part, stop: bool, asked: bool, told: list[str], logged: list[str]
) -> None:
    async def go() -> tuple[bool, list[str]]:
        heard: list[str] = []
        event, other = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(part(heard))
        if stop:
            asyncio.get_running_loop().call_soon(event.set)
        found = await asyncio.wait_for(_ends_first(task, event, other), 5)
        assert task.done()
        return found, heard

    with structlog.testing.capture_logs() as logs:
        assert asyncio.run(go()) == (asked, told)
    assert [line["event"] for line in logs] == logged


def test_a_goal_is_reached_while_the_parts_go_on() -> None:
    async def go() -> None:
        others = [asyncio.create_task(works_on([]))]
        goal = asyncio.create_task(ends([]))
        await _until(goal, others)
        assert not others[0].done()
        others[0].cancel()
        await asyncio.gather(*others, return_exceptions=True)

    asyncio.run(go())


@pytest.mark.parametrize(
    ("part", "error"), [(ends, "a part of the operator ended by itself"), (fails, "broken")]
)
def test_a_part_that_ends_ends_the_wait(part: Part, error: str) -> None:
    async def go() -> None:
        goal = asyncio.create_task(works_on([]))
        with pytest.raises((RuntimeError, ValueError), match=error):
            await _until(goal, [asyncio.create_task(part([]))])
        await asyncio.gather(goal, return_exceptions=True)
        assert goal.cancelled()

    asyncio.run(go())


def test_passes_in_work_are_waited_for_while_the_lease_is_held() -> None:
    """Not for a moment longer: another replica may be at work by then."""

    async def go() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        held = asyncio.Event()
        held.set()
        await _drained([asyncio.create_task(ends([]))], held.is_set)
        stuck = asyncio.create_task(works_on([]))
        began = loop.time()
        loop.call_later(0.2, held.clear)
        await _drained([stuck], held.is_set)
        done, took = stuck.done(), loop.time() - began
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        return done, took

    done, took = asyncio.run(go())
    assert not done
    assert 0.2 <= took < DRAIN_SECONDS


def test_without_its_lease_a_replica_does_not_go_on_to_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Connection(contextlib.nullcontext[None]):
        host, namespace, account = "http://nowhere", "lab", None

        async def __aenter__(self) -> Self:  # type: ignore[override]  # itself, as a Cluster does
            return self

    async def connect(**_: object) -> Connection:
        return Connection()

    async def breaks(_: LeaderElection) -> None:
        raise ValueError("broken")

    async def nothing(_: LeaderElection) -> None:
        pass

    monkeypatch.setattr(Cluster, "connect", connect)
    monkeypatch.setattr(LeaderElection, "acquire", breaks)
    monkeypatch.setattr(LeaderElection, "release", nothing)
    settings = OperatorSettings(health_port=0, metrics_port=0)
    assert asyncio.run(asyncio.wait_for(serve(settings), 10)) is Ending.FAILED
