"""The first pod is waited for, and a reason given where it does not come."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from structlog.testing import capture_logs

from drivetrain_trainer.launcher import reachability
from drivetrain_trainer.launcher.reachability import (
    UnreachableError,
    await_master,
    await_own_name,
)
from drivetrain_trainer.launcher.settings import Rendezvous


def rendezvous(address: str, port: int) -> Rendezvous:
    return Rendezvous(2, 1, 1, address, port)


def pause(_: float) -> None:
    threading.Event().wait(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_it_returns_once_somebody_listens() -> None:
    port, tries = free_port(), []
    with socket.socket() as server:

        def appear(_: float) -> None:
            tries.append(1)
            if len(tries) == 3:
                server.bind(("127.0.0.1", port))
                server.listen()

        await_master(rendezvous("127.0.0.1", port), 30, stopped=lambda: False, pause=appear)
    assert len(tries) == 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            (
                "its name does not resolve (Name or service not known): has its pod an address, "
                "and is its headless Service there?"
            ),
        ),
        (
            socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
            (
                "its name does not resolve (Temporary failure in name resolution): no DNS server "
                "answers; is a network policy in the way of port 53?"
            ),
        ),
        (ConnectionRefusedError(), "nothing listens there"),
        (TimeoutError(), "no answer: is a network policy in the way?"),
        (OSError(113, "No route to host"), "No route to host"),
    ],
)
def test_the_last_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    def fail(*_: object, **__: object) -> socket.socket:
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    with pytest.raises(UnreachableError) as caught:
        await_master(rendezvous("run-0.run", 29500), 0.1, stopped=lambda: False, pause=pause)
    assert f"run-0.run:29500 within 0 s: {reason}" in str(caught.value)


def test_a_refused_connection_is_told_for_real() -> None:
    with pytest.raises(UnreachableError, match="nothing listens there"):
        await_master(rendezvous("127.0.0.1", free_port()), 0, stopped=lambda: False, pause=pause)


def test_a_stop_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "_PAUSE_SECONDS", 1000)
    asked: list[float] = []
    await_master(
        rendezvous("127.0.0.1", free_port()),
        1000,
        stopped=lambda: bool(asked),
        pause=asked.append,
    )
    assert asked == [1000]


def test_the_first_pod_waits_for_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[object] = []

    def resolve(*address: object, **_: object) -> list[object]:
        tries.append(address)
        if len(tries) < 4:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with capture_logs() as logs:
        await_own_name(rendezvous("run-0.run", 29500), 30, stopped=lambda: False, pause=pause)
    assert tries == [("run-0.run", 29500)] * 4
    (entry,) = logs  # the reason once, not at each try
    assert "cannot be found under its own name run-0.run" in entry["problem"]


def test_a_name_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(
        UnreachableError, match=r"own name run-0\.run within 0 s: its name does not"
    ):
        await_own_name(rendezvous("run-0.run", 29500), 0.1, stopped=lambda: False, pause=pause)


def test_a_stop_does_not_wait_for_a_slow_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, release = threading.Event(), threading.Event()

    def resolve(*_: object, **__: object) -> None:
        asked.set()
        release.wait(60)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    began = time.monotonic()
    await_own_name(rendezvous("run-0.run", 29500), 1000, stopped=asked.is_set, pause=pause)
    release.set()
    assert time.monotonic() - began < 10
