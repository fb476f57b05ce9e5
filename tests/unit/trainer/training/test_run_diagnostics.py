"""What a real run persists of its throughput and of the age of its data."""

from __future__ import annotations

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_run import Ranks

from drivetrain_api.exit_codes import ExitCode

AGES = "sac_actor/update/version_stats/"


def test_throughput_and_staleness_of_a_run_reach_its_log(ranks: Ranks) -> None:
    attempt = ranks.attempt(training={"logger": "tensorboard", "log_interval": 5})
    assert attempt.run() is ExitCode.DONE
    (path,) = attempt.directory.glob("events.out.tfevents.*")
    events = EventAccumulator(str(path))
    events.Reload()

    def series(tag: str) -> list[tuple[int, float]]:
        return [(event.step, event.value) for event in events.Scalars(tag)]

    # 60 iterations of a tick and 2 steps each. Replay holds 8 ticks' rows, enough to learn from,
    # once tick 8 was served: iterations 8 to 59 learn, from 2 * 16 rows each, 5 between reports.
    steps = list(range(20, 121, 10))
    assert series("train_perf/tokens") == [(20, 64.0), *((step, 160.0) for step in steps[1:])]
    totals = series("train_perf/total_tokens")
    assert totals[-1] == (120, 52 * 32.0)
    seconds = [value for _, value in series("train_perf/seconds")]
    assert all(value > 0 for value in seconds)
    assert sum(seconds) == pytest.approx(series("train_perf/total_seconds")[-1][1], rel=1e-4)
    # Every update is estimated alike, so FLOPs go with the rows.
    flops = [value for _, value in series("train_perf/estimated_flops")]
    assert flops[1] / flops[0] == pytest.approx(160 / 64)

    # Warm-up actions have no version. The policy of the tick before is one version behind.
    assert series(AGES + "sample_staleness_theta_min")[0][1] >= 1.0
    for family in ("theta", "proximal"):
        for extreme in ("min", "avg", "max"):
            tag = f"{AGES}sample_staleness_{family}_{extreme}"
            assert [step for step, _ in series(tag)] == steps
        # Report n is of iteration 5 n - 1; the oldest policy's row is of iteration 8.
        oldest = series(f"{AGES}sample_staleness_{family}_max")
        assert all(value <= step / 2 - 1 - 8 for step, value in oldest)
        assert oldest[-1][1] > 30.0
    assert {value for _, value in series(AGES + "stale_token_fraction")} == {1.0}
    assert {value for _, value in series(AGES + "future_token_fraction")} == {0.0}
    counted = [value for _, value in series(AGES + "n_valid_generated_tokens")]
    assert counted[0] < counted[-1] <= 32.0  # ever fewer rows of the warm-up among the 32
