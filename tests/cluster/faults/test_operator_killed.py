"""The operator killed between any two of its writes, and started again: nothing is lost."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from tests.cluster.faults.lab import Lab, namespace_of
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.calls import Selector
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.simulated_kubelet import Plan, fails_once, runs_on

LANES = 4
"""Runs at the same time, each with an operator of its own."""


def life_of_a_failure(lab: Lab, run: str) -> None:
    """Created, running, failed, again, complete."""
    lab.create(run, storage={"size": "1Gi"})
    lab.completes(run)


def life_of_a_pause(lab: Lab, run: str) -> None:
    """Created, suspended, resumed, deleted."""
    lab.create(run)
    lab.phase(run, "Running")
    lab.change(run, suspend=True)
    status = lab.phase(run, "Suspended")
    assert [r["reason"] for r in status["history"]] == ["SuspendedBySpec"]
    assert not lab.alive(run)
    lab.change(run, suspend=False)
    status = lab.phase(run, "Running")
    assert (status["attempt"], status["restarts"], len(status["history"])) == (2, 0, 1)
    lab.delete(run)
    lab.gone(run)


def plans(run: str, attempt: int) -> Plan:
    return (fails_once if run.startswith("fails") else runs_on)(run, attempt)


Life = Callable[[Lab, str], None]


class Lane:
    """One operator, one run after another; whenever it is killed it is started again."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._over = threading.Event()
        self._nurse = threading.Thread(target=self._revive, name="nurse")

    def __enter__(self) -> Self:
        self._nurse.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._nurse.join()

    def _revive(self) -> None:
        while not self._over.wait(0.05):
            if not self._lab.operator.process.running:
                self._lab.operator.start(ready=False)

    def live(self, life: Life, run: str, number: int) -> bool:
        """A run's life with a kill after its Nth write; whether it had so many."""
        hook = self._lab.proxy.on_call(
            Selector(name=f"{run}*", writes=True),
            lambda _: self._lab.operator.stop(signal.SIGKILL),
            number=number,
        )
        try:
            life(self._lab, run)
        except AssertionError as error:
            raise AssertionError(f"killed after write {number}: {error}") from error
        self._lab.witness.check(run)
        return hook.seen >= number


class Positions:
    """Numbers of writes, until a run had fewer; shared by the lanes."""

    def __init__(self, step: int) -> None:
        self._numbers = itertools.count(1, step)
        self._lock = threading.Lock()
        self.writes = 0
        """The last write that was followed by a kill."""
        self._over = False

    def __iter__(self) -> Iterator[int]:
        while not self._over:
            with self._lock:
                number = next(self._numbers)
            yield number

    def had(self, number: int, *, killed: bool) -> None:
        """What became of a position."""
        with self._lock:
            self._over |= not killed
            if killed:
                self.writes = max(self.writes, number)


@pytest.mark.parametrize(
    ("life", "prefix", "fewest"), [(life_of_a_failure, "fails", 20), (life_of_a_pause, "stops", 20)]
)
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.nightly)])
def test_killed_after_any_write_and_started_again(
    *,
    control_plane: ControlPlane,
    api: Api,
    tmp_path: Path,
    life: Life,
    prefix: str,
    fewest: int,
    step: int,
) -> None:
    positions = Positions(step)

    def lane(index: int) -> None:
        with (
            namespace_of(api) as namespace,
            Lab(control_plane, namespace, tmp_path / f"lane-{index}", plans=plans) as lab,
            Lane(lab) as patient,
        ):
            for number in positions:
                killed = patient.live(life, f"{prefix}-{number:03}", number)
                positions.had(number, killed=killed)

    with ThreadPoolExecutor(LANES) as pool:
        for done in [pool.submit(lane, index) for index in range(LANES)]:
            done.result()
    assert positions.writes >= fewest
