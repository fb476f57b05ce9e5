from __future__ import annotations

import asyncio
import urllib.error
import urllib.request

import pytest

from drivetrain_operator.wiring.health import (
    Health,
    Limits,
    WatchState,
    health_app,
    metrics_app,
    queue_check,
    serving,
    trouble_check,
    watch_check,
)
from drivetrain_operator.wiring.metrics import Metrics

LIMITS = Limits(stuck_seconds=120.0, silent_seconds=130.0)


@pytest.mark.parametrize(
    ("waited", "worked", "since_pass", "reasons"),
    [
        (0.0, 0.0, 900.0, []),
        (120.0, 120.0, 900.0, []),
        (900.0, 1.0, 2.0, []),
        (900.0, 1.0, 121.0, ["queue stuck: runs wait and no pass has ended for 121 s"]),
        (121.0, 0.0, 900.0, ["queue stuck: runs wait and no pass has ended for 121 s"]),
        (0.0, 200.4, 0.0, ["queue stuck: a pass has lasted 200 s"]),
    ],
)
def test_a_stuck_queue(waited: float, worked: float, since_pass: float, reasons: list[str]) -> None:
    """Runs that wait after a burst are no reason: a restart would begin it anew."""
    check = queue_check(lambda: waited, lambda: worked, lambda: since_pass, LIMITS)
    assert list(check()) == reasons


@pytest.mark.parametrize(
    ("state", "reasons"),
    [
        (WatchState("jobs", 130.0), []),
        (WatchState("jobs", 131.0), ["stale watch: jobs silent for 131 s"]),
        (WatchState("jobs", 131.0, "jobs: 503"), []),
        (
            WatchState("jobs", 651.0, "jobs: 503"),
            ["stale watch: jobs silent for 651 s (jobs: 503)"],
        ),
    ],
)
def test_a_silent_watch(state: WatchState, reasons: list[str]) -> None:
    assert list(watch_check(lambda: [state], LIMITS)()) == reasons


def test_trouble_is_no_reason_for_a_restart_but_not_ready() -> None:
    states = [WatchState("jobs", 1.0, "jobs: 503 away"), WatchState("pods", 1.0)]
    health = Health()
    health.add(live=watch_check(lambda: states, LIMITS), ready=trouble_check(lambda: states))
    assert health.not_live() == []
    assert health.not_ready() == ["watch in trouble: jobs: 503 away"]


def test_what_is_not_live_is_not_ready_and_told_once() -> None:
    health = Health()
    health.add(live=lambda: ["lost"], ready=lambda: ["lost", "away"])
    assert health.not_live() == ["lost"]
    assert health.not_ready() == ["lost", "away"]


def fetch(port: int, path: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_the_servers_answer() -> None:
    async def go() -> None:
        health, metrics = Health(), Metrics()
        reasons: list[str] = []
        health.add(live=list, ready=lambda: reasons)
        async with (
            serving(health_app(health), 0, "health") as port,
            serving(metrics_app(metrics), 0, "metrics") as other,
        ):
            assert (await asyncio.to_thread(fetch, port, "readyz"))[::2] == (200, "ok\n")
            reasons += ["this", "that"]
            assert (await asyncio.to_thread(fetch, port, "readyz"))[::2] == (503, "this\nthat\n")
            assert (await asyncio.to_thread(fetch, port, "livez"))[::2] == (200, "ok\n")
            code, kind, text = await asyncio.to_thread(fetch, other, "metrics")
            assert (code, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
            assert "drivetrain_leader 0.0" in text

    asyncio.run(go())


def test_a_port_that_is_taken_is_an_error() -> None:
    async def go() -> None:
        async with serving(health_app(Health()), 0, "health") as port:
            with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
                async with serving(health_app(Health()), port, "health"):
                    pass

    asyncio.run(go())
