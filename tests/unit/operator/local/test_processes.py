from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drivetrain_operator.local.processes import (
    TOKEN_VARIABLE,
    Guard,
    owned,
    sweep,
    sweep_until_clean,
    token,
)

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(value: str, program: str = "import time; time.sleep(60)") -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", program],
            env={**os.environ, TOKEN_VARIABLE: value},
            stdout=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_each_part_of_a_token_selects_its_processes(
    start: Start, wait_until: Callable[..., Any]
) -> None:
    one, two = start(token("run", "first", "p1")), start(token("run", "second", "p2"))
    wait_until(lambda: set(owned("run")) == {one.pid, two.pid})
    assert list(owned("first")) == [one.pid]
    assert list(owned("p2")) == [two.pid]
    assert list(owned("ru")) == []
    assert list(owned("run/first")) == []


def test_a_sweep_spares_everybody_else(start: Start, wait_until: Callable[..., Any]) -> None:
    mine, other = start(token("run", "a", "p1")), start(token("run", "a", "p2"))
    wait_until(lambda: len(list(owned("run"))) == 2)
    assert sweep("p1") == 1
    assert mine.wait() == -signal.SIGKILL
    assert other.poll() is None
    # A zombie counts as gone, and so does a process that was never there.
    assert sweep("p1") == 0


def test_a_process_never_kills_itself() -> None:
    program = (
        "from drivetrain_operator.local.processes import sweep_until_clean\n"
        "print(sweep_until_clean('self'))"
    )
    environment = {**os.environ, TOKEN_VARIABLE: token("self", "x", "y")}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True
    )
    assert found.stdout == b"True\n"


def test_a_forking_process_does_not_escape(start: Start) -> None:
    fork = "import os, time\nfor _ in range(6): os.fork()\nprint('', flush=True)\ntime.sleep(60)"
    leader = start(token("forks", "x", "y"), fork)
    assert leader.stdout is not None
    leader.stdout.readline()
    assert sweep_until_clean("forks")
    assert list(owned("forks")) == []


def test_the_guard_sweeps_when_its_owner_is_killed(
    start: Start, wait_until: Callable[..., Any]
) -> None:
    program = (
        "import time\n"
        "from drivetrain_operator.local.processes import Guard\n"
        "guard = Guard('doomed'); print(guard.pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    guard = int(owner.stdout.readline())
    pod = start(token("run", "doomed", "p"))
    wait_until(lambda: list(owned("doomed")))
    # What a terminal sends to everything in it does not end the guard.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guard, number)
    assert pod.poll() is None
    owner.kill()
    owner.communicate()
    assert pod.wait(5) == -signal.SIGKILL
    wait_until(lambda: not os.path.exists(f"/proc/{guard}/exe"))  # noqa: PTH110


def test_a_guard_that_was_killed_is_replaced(start: Start, wait_until: Callable[..., Any]) -> None:
    guard = Guard("again")
    first = guard.pid
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    guard.ensure()
    assert guard.pid != first
    second = guard.pid
    guard.ensure()
    assert guard.pid == second
    pod = start(token("run", "again", "p"))
    wait_until(lambda: list(owned("again")))
    guard.close()
    assert pod.wait(5) == -signal.SIGKILL
