"""The judgement over learning curves, on curves whose judgement is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from learning_curves import ALARM, Curve, chance_of_equals, least_chance, read_reference, read_run

TASKS = ("inverted_pendulum", "hopper", "half_cheetah")


def curves(*scores: float) -> tuple[Curve, ...]:
    return tuple(Curve(seed, ((1_000, score),)) for seed, score in enumerate(scores))


@pytest.mark.parametrize(
    ("ours", "theirs", "chance"),
    [
        ((1.0, 2.0), (3.0, 4.0), 1 / 6),
        ((3.0, 4.0), (1.0, 2.0), 1.0),
        ((1.0, 4.0), (2.0, 3.0), 4 / 6),  # 1+2, 1+3, 1+4 and 2+3 are no higher than 1+4
        ((5.0, 5.0), (5.0, 5.0), 1.0),
        ((1.0, 2.0, 3.0, 4.0, 5.0), (6.0, 7.0, 8.0, 9.0, 10.0), 1 / 252),
    ],
)
def test_the_chance_is_the_share_of_splits_as_low(
    ours: tuple[float, ...], theirs: tuple[float, ...], chance: float
) -> None:
    assert chance_of_equals(curves(*ours), curves(*theirs)) == pytest.approx(chance)
    assert chance >= least_chance(curves(*ours), curves(*theirs)) - 1e-12


def test_a_score_is_the_mean_over_the_whole_curve() -> None:
    late = Curve(0, ((1_000, 0.0), (2_000, 0.0), (3_000, 900.0)))
    early = Curve(0, ((1_000, 0.0), (2_000, 900.0), (3_000, 900.0)))
    assert (late.score, early.score) == (300.0, 600.0)


def test_a_run_is_read_where_it_evaluated(tmp_path: Path) -> None:
    lines = [
        {"metric_schema_version": 1},
        {"step": 500, "values": {"Train/mean_reward": 1.0}},
        {"step": 1_000, "values": {"eval-rollout/reward": 12.5}},
        {"step": 2_000, "values": {"eval-rollout/reward": 25.0}},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_run(tmp_path, 7) == Curve(7, ((1_000, 12.5), (2_000, 25.0)))


@pytest.mark.parametrize("task", TASKS)
def test_references_of_both_have_seeds_enough_at_the_same_steps(task: str) -> None:
    ours, theirs = (read_reference(f"{maker}_{task}") for maker in ("drivetrain", "sb3"))
    assert least_chance(ours, ours) <= ALARM
    assert len(theirs) >= 3
    (steps,) = {tuple(step for step, _ in curve.points) for curve in (*ours, *theirs)}
    assert steps[-1] >= 8_000
