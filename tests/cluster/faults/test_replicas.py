"""Two replicas, and what befalls the one that leads: the other goes on where it was."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.faults.lab import Lab
from tests.support.kubernetes.api import wait_for
from tests.support.kubernetes.calls import Verb, calls
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.simulated_kubelet import Plan
from tests.support.operator_process import OperatorProcess

Pair = tuple[Lab, OperatorProcess]


def stays_then_fails(_: str, attempt: int) -> Plan:
    return Plan(code=1, steps=500) if attempt == 1 else Plan()


@pytest.fixture
def pair(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Pair]:
    """The leader of the lab, and one that stands by."""
    with (
        Lab(control_plane, namespace, tmp_path, flags=(), plans=stays_then_fails) as lab,
        lab.replica("second") as second,
    ):
        lab.operator.start()
        second.start(ready=False)
        wait_for(lambda: second.probe("readyz")[0] == 200, "standby")
        yield lab, second


def test_the_leader_is_killed_amid_its_writes(pair: Pair) -> None:
    lab, second = pair
    lab.proxy.on_call(
        calls("jobs", Verb.CREATE, name="one-a1"), lambda _: lab.operator.stop(signal.SIGKILL)
    )
    for name in ("one", "two", "three"):
        lab.create(name)
    for name in ("one", "two", "three"):
        lab.completes(name)
    assert not lab.operator.process.running
    assert second.metric("drivetrain_leader") == 1


def test_a_leader_that_was_frozen_does_nothing_once_it_is_not_one(pair: Pair) -> None:
    """It wakes up amid its work, with a Lease that is another one's: it ends, and is started."""
    lab, second = pair
    hook = lab.proxy.on_call(
        calls("trainingruns/status", Verb.APPLY, name="one"),
        lambda _: lab.operator.process.pause(),
        number=2,
    )
    lab.create("one")
    lab.create("two")
    assert hook.done.wait(60)
    lab.completes("one")
    lab.completes("two")
    assert second.metric("drivetrain_leader") == 1
    lab.operator.process.resume()
    wait_for(lambda: not lab.operator.process.running, "end of the one that leads no more")
    assert lab.operator.stop() == 1
    lab.completes("one")
    assert lab.witness.jobs_made("one", 3) == 0
