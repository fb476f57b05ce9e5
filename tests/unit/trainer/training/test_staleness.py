from __future__ import annotations

from collections import deque

import pytest
import torch

from drivetrain_trainer.stats import StatsTracker
from drivetrain_trainer.stats.staleness import NO_VERSION
from drivetrain_trainer.training.schedule import Cursor
from drivetrain_trainer.training.staleness import ReplayAges


@pytest.mark.parametrize("ticks_an_iteration", [1, 2, 3])
@pytest.mark.parametrize("capacity", [7, 1000])
def test_versions_are_those_of_a_ring_that_stores_them(
    ticks_an_iteration: int, capacity: int
) -> None:
    """Lockstep as the learner does it, beside a ring that remembers each row's version."""
    envs, warm_up = 3, 4
    ages = ReplayAges(envs, ticks_an_iteration, warm_up)
    ring: deque[int] = deque(maxlen=capacity)
    cursor = Cursor()
    behind: list[int] = []
    for iteration in range(12):
        for _ in range(ticks_an_iteration):
            ring.extend(behind)  # the rows of earlier ticks are in replay before this one's answer
            version = NO_VERSION if cursor.tick < warm_up else iteration
            behind = [version] * envs
            cursor.tick += 1
        cursor.iteration += 1
        newest_first = torch.arange(len(ring))
        found = ages.behaviour_versions(newest_first, cursor).tolist()
        assert found == list(reversed(ring))
        assert ages.published_version(cursor) == iteration


def test_a_sample_by_hand() -> None:
    # 4 environments, a tick an iteration, 2 warm-up ticks; iteration 9 just finished, so 10 ticks
    # were served and the newest row is of tick 8, served by version 8, a version behind the 9.
    # Rows 0 and 3 behind the newest are of tick 8 (age 1), row 4 of tick 7 (age 2), row 27 of
    # tick 2 (age 7), row 28 of tick 1: random.
    tracker = StatsTracker()
    ages = ReplayAges(num_envs=4, env_steps_per_sync=1, learning_starts=2)
    ages.record(tracker, torch.tensor([0, 3, 4, 27, 28]), Cursor(tick=10, iteration=10))
    prefix = "sac_actor/update/version_stats/"
    found = {key.removeprefix(prefix): value for key, value in tracker.export().items()}
    assert found["sample_staleness_theta_avg"] == (1 + 1 + 2 + 7) / 4
    assert (found["sample_staleness_theta_min"], found["sample_staleness_theta_max"]) == (1, 7)
    assert found["stale_token_fraction"] == 1.0
    assert found["future_token_fraction"] == 0.0
    assert found["n_valid_generated_tokens"] == 4.0


def test_nothing_sampled_is_nothing_recorded() -> None:
    tracker = StatsTracker()
    ReplayAges(4, 1, 2).record(tracker, None, Cursor(tick=1, iteration=1))
    assert tracker.export() == {}
