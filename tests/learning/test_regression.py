"""The project's own suites against what it learnt before, and against SB3.

``references/drivetrain_*.json`` are made by ``references/drivetrain_sac.py``, SB3's by
``references/sb3_sac.py``. A change that is meant to learn better makes the first anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from learning_curves import ALARM, chance_of_equals, describe, least_chance, read_reference
from learning_suite import run_suite


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("task", ["inverted_pendulum", "hopper", "half_cheetah"])
def test_it_learns_no_worse_than_before_and_than_sb3(task: str, tmp_path: Path) -> None:
    now = run_suite(task, tmp_path)
    print(f"{task}: now {describe(now)}")
    for maker in ("drivetrain", "sb3"):
        reference = read_reference(f"{maker}_{task}")
        chance = chance_of_equals(now, reference)
        print(f"{maker}: {describe(reference)}; chance if alike {chance:.3f}")
        assert chance > max(ALARM, least_chance(now, reference)), f"learns worse than {maker} did"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_change_that_hurts_learning_is_seen(tmp_path: Path) -> None:
    hurt = run_suite("inverted_pendulum", tmp_path, gamma=0.2)
    print(f"hurt {describe(hurt)}")
    assert chance_of_equals(hurt, read_reference("drivetrain_inverted_pendulum")) <= ALARM
