"""Curves of evaluated returns: references on disk, finished runs, and which of two are worse."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

REFERENCES = Path(__file__).parents[1] / "learning" / "references"
RETURN = "eval-rollout/reward"
ALARM = 0.02
"""What learns just as well is taken for worse by chance once in 50 nights and tasks."""


@dataclass(frozen=True)
class Curve:
    """One seed's evaluated returns."""

    seed: int
    points: tuple[tuple[int, float], ...]
    """Environment steps and the mean return evaluated there."""

    @property
    def score(self) -> float:
        """Mean of the evaluated returns: the area under the curve over the steps it took."""
        return statistics.fmean(mean for _, mean in self.points)


def read_reference(name: str) -> tuple[Curve, ...]:
    """The curves of ``references/<name>.json``."""
    document = json.loads((REFERENCES / f"{name}.json").read_text())
    return tuple(
        Curve(run["seed"], tuple((p["env_steps"], p["return"]) for p in run["curve"]))
        for run in document["runs"]
    )


def read_run(directory: Path, seed: int) -> Curve:
    """The curve of a run that logged to ``metrics.jsonl``."""
    records: list[dict[str, Any]] = [
        json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()
    ]
    points = tuple(
        (record["step"], record["values"][RETURN])
        for record in records
        if RETURN in record.get("values", {})
    )
    assert points, f"{directory} holds no evaluation"
    return Curve(seed, points)


def chance_of_equals(ours: tuple[Curve, ...], theirs: tuple[Curve, ...]) -> float:
    """How likely scores as low as `ours` are, beside `theirs`, if both learn alike.

    The exact one-sided permutation test on the mean score (Fisher, The Design of Experiments,
    1935, section 21): the share of all ways to split the pooled scores whose first part has a
    mean no higher than that of `ours`.
    """
    pooled = [curve.score for curve in (*ours, *theirs)]
    observed = statistics.fmean(pooled[: len(ours)])
    splits = list(combinations(pooled, len(ours)))
    slack = 1e-9 * max(1.0, abs(observed))  # sums of the same scores in another order
    return sum(statistics.fmean(split) <= observed + slack for split in splits) / len(splits)


def least_chance(ours: tuple[Curve, ...], theirs: tuple[Curve, ...]) -> float:
    """The least that `chance_of_equals` can be with as many seeds."""
    return 1 / math.comb(len(ours) + len(theirs), len(ours))


def describe(curves: tuple[Curve, ...]) -> str:
    """Scores and last returns, for a test's output."""
    scores = ", ".join(f"{curve.score:,.0f}" for curve in curves)
    last = ", ".join(f"{curve.points[-1][1]:,.0f}" for curve in curves)
    return f"mean evaluated return {scores}; last {last}"
