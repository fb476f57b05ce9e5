"""Runs that are killed, hung, starved and cut off at random: they end well, and leave nothing.

``DRIVETRAIN_CHAOS_SEED`` is the first trial's seed, ``DRIVETRAIN_CHAOS_TRIALS`` how many there
are: a failed trial prints the words that repeat it. ``DRIVETRAIN_CHAOS_FAULT`` names the one
fault to try; ``DRIVETRAIN_CHAOS_REPORT`` a file that gets a line of JSON of each trial.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.chaos.arena import Arena
from tests.support.chaos.means import Means
from tests.support.chaos.plan import Fault, Plan, Topology, Victim, When, plan_of
from tests.support.chaos.trial import PATIENCE_S, run_trial
from tests.support.chaos.watch import Watch

FIRST = int(os.environ.get("DRIVETRAIN_CHAOS_SEED", "0"))
TRIALS = int(os.environ.get("DRIVETRAIN_CHAOS_TRIALS", "100"))
FAULT = os.environ.get("DRIVETRAIN_CHAOS_FAULT")
REPORT = os.environ.get("DRIVETRAIN_CHAOS_REPORT")
LEAST_STALL_S, MOST_STALL_S = 10, 110
"""Of the setting, and of the time that a learner waits for a collector that hangs."""


@pytest.fixture(scope="session")
def means(tmp_path_factory: pytest.TempPathFactory) -> Means:
    return Means(tmp_path_factory.mktemp("means"))


@pytest.fixture(scope="session")
def stall_s(means: Means, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Four times what the first figures took to come, here and now."""
    plan = plan_of(1, fault=Fault.PAUSE)
    with Arena(tmp_path_factory.mktemp("calm"), plan, means) as arena:
        watch, began = Watch(arena), time.monotonic()
        arena.type(600)
        while watch.steps() == 0:
            assert arena.command.poll() is None, (arena.folder / "told").read_text()
            assert time.monotonic() < began + PATIENCE_S
            time.sleep(0.1)
        took = time.monotonic() - began
    return min(MOST_STALL_S, max(LEAST_STALL_S, math.ceil(4 * took)))


def tried(plan: Plan, means: Means, folder: Path, stall_s: int) -> None:
    again = f"DRIVETRAIN_CHAOS_SEED={plan.seed} DRIVETRAIN_CHAOS_TRIALS=1"
    print(f"{again}: {plan}")
    result = run_trial(plan, means, folder / "trial", stall_s=stall_s)
    print(result.line())
    if REPORT is not None:
        with Path(REPORT).open("a") as report:
            report.write(result.line() + "\n")
    assert not result.problems, "\n".join(
        (f"{again}: {plan}", *result.problems, f"in {folder}", result.told)
    )


@pytest.mark.nightly
@pytest.mark.timeout(PATIENCE_S * 2)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + TRIALS))
def test_a_troubled_run_ends_well(seed: int, means: Means, tmp_path: Path, stall_s: int) -> None:
    fault = Fault(FAULT) if FAULT is not None else None
    tried(plan_of(seed, means.faults, fault), means, tmp_path, stall_s)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.CLOCK, Fault.DISK_FULL, Fault.FILE_LIMIT])
def test_a_few_faults_of_each_day(fault: Fault, means: Means, tmp_path: Path) -> None:
    if fault not in means.faults:
        pytest.skip(f"this machine has no means for {fault}")
    drawn = plan_of(7, fault=fault)
    victim = Victim.COMMAND if fault is Fault.CLOCK else Victim.RANK
    plan = replace(
        drawn,
        topology=Topology.ALONE,
        task="inverted_pendulum",
        steps=600,
        rank=0,
        victim=victim,
        when=When.STEPS,
        part=0.3,
        delay_s=0.0,
        lasts_s=1.0,
    )
    tried(plan, means, tmp_path, 600)
