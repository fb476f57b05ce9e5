"""Scores by hand, and the refusals of what has no common scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.analysis.comparison.inputs import ComparisonError
from drivetrain_trainer.analysis.comparison.reading import ComparedRun, Standing
from drivetrain_trainer.analysis.comparison.scoring import (
    Metric,
    Scale,
    Scaling,
    ScoringOptions,
    first_reached,
    mean_between,
    scaled,
    score_task,
)
from drivetrain_trainer.analysis.runs import Series


def series(*points: tuple[int, float]) -> Series:
    steps, values = zip(*points, strict=True)
    times = np.array(steps, dtype=np.float64)
    return Series(np.array(steps, np.int64), times, np.array(values, np.float64))


def run(name: str, evaluated: Series | None, training: Series | None = None) -> ComparedRun:
    return ComparedRun(
        name[0], Path(name), "hopper", Standing.COMPLETED, evaluated=evaluated, training=training
    )


RISE = series((0, 0.0), (50, 10.0), (100, 20.0))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 100, 10.0),
        (50, 100, 15.0),
        (90, 100, 19.0),
        (100, 100, 20.0),
        (25, 25, 5.0),
        # Level beyond the ends: half of the way at 20.
        (100, 200, 20.0),
        (50, 150, (7.5 * 2 * 50 + 20 * 50) / 100),
    ],
)
def test_means_of_a_curve(start: float, end: float, expected: float) -> None:
    assert mean_between(RISE, start, end) == pytest.approx(expected)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20),
    st.floats(0, 400),
    st.floats(0, 400),
)
def test_a_mean_lies_among_the_values(values: list[float], one: float, other: float) -> None:
    curve = series(*((10 * place, value) for place, value in enumerate(values)))
    found = mean_between(curve, min(one, other), max(one, other))
    slack = 1e-6 * (1 + max(map(abs, values)))
    assert min(values) - slack <= found <= max(values) + slack


def test_first_reached() -> None:
    dip = series((10, 1.0), (20, 5.0), (30, 2.0), (40, 6.0))
    assert first_reached(dip, 5.0) == 20
    assert first_reached(dip, 1.0) == 10
    assert first_reached(dip, 6.5) == float("inf")


def test_all_are_scored_at_what_all_have() -> None:
    short = run("b1", series((20, 1.0), (80, 1.0)))
    scores = score_task(
        "hopper",
        {"a": [run("a1", RISE)], "b": [short]},
        ScoringOptions(thresholds={"": 1.0, "walker2d": 9.0}, last_share=0.5),
    )
    assert (scores.start, scores.budget) == (20, 80)
    # From half of the budget on: 40 to 80 steps, returns 8 to 16.
    assert scores.final["a"] == pytest.approx([12.0])
    assert scores.area["a"] == pytest.approx([10.0])
    assert scores.final["b"] == pytest.approx([1.0])
    assert scores.reached["a"].tolist() == [50.0]
    assert scores.reached["b"].tolist() == [20.0]
    assert scores.metric is Metric.EVALUATED
    assert scores.notes == ()


def test_curves_that_do_not_meet_are_scored_at_the_end_of_the_shortest() -> None:
    late = run("b1", series((90, 7.0), (100, 9.0)))
    scores = score_task(
        "hopper", {"a": [run("a1", series((10, 3.0)))], "b": [late]}, ScoringOptions()
    )
    assert (scores.start, scores.budget) == (10, 10)
    assert scores.final["b"] == [7.0]


@pytest.mark.parametrize(
    ("evaluated", "wanted", "metric", "note"),
    [
        ((RISE, RISE), None, Metric.EVALUATED, None),
        ((RISE, RISE), Metric.TRAINING, Metric.TRAINING, None),
        ((RISE, None), None, Metric.TRAINING, "hopper: 1 of 2 runs have no evaluated return;"),
        ((None, None), None, Metric.TRAINING, "hopper: no run was evaluated;"),
    ],
)
def test_the_metric_is_one_that_all_have(
    evaluated: tuple[Series | None, Series | None],
    wanted: Metric | None,
    metric: Metric,
    note: str | None,
) -> None:
    runs = {name: [run(name, one, RISE)] for name, one in zip("ab", evaluated, strict=True)}
    scores = score_task("hopper", runs, ScoringOptions(metric=wanted))
    assert scores.metric is metric
    if note is None:
        assert scores.notes == ()
    else:
        assert scores.notes[0].startswith(note)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Metric.EVALUATED, "1 of 2 runs have no evaluated return, the first b1"),
        (None, "no curve is common to all runs: b1 has no evaluated return, a1 no training reward"),
    ],
)
def test_no_common_metric_is_refused(wanted: Metric | None, words: str) -> None:
    runs = {"a": [run("a1", RISE, None)], "b": [run("b1", None, RISE)]}
    with pytest.raises(ComparisonError, match=words):
        score_task("hopper", runs, ScoringOptions(metric=wanted))


def task(name: str, *finals: float, began: float = 0.0) -> Any:
    """A task whose runs begin at one return and end, level, at others."""
    curves = [series((0, began), (10, final), (100, final)) for final in finals]
    runs = {"a": [run(f"a{place}", curve) for place, curve in enumerate(curves)]}
    return score_task(name, runs, ScoringOptions())


@pytest.mark.parametrize(
    ("tasks", "options", "expected"),
    [
        (("hopper",), ScoringOptions(), {"hopper": None}),
        (("hopper",), ScoringOptions(scaling=Scaling.RAW), {"hopper": None}),
        (
            ("hopper",),
            ScoringOptions(scaling=Scaling.MINMAX),
            {"hopper": Scale(-5.0, 30.0, given=False)},
        ),
        (
            ("ant", "hopper"),
            ScoringOptions(),
            {name: Scale(-5.0, 30.0, given=False) for name in ("ant", "hopper")},
        ),
        (
            ("hopper",),
            ScoringOptions(references={"hopper": (1.0, 2.0)}),
            {"hopper": Scale(1.0, 2.0, given=True)},
        ),
    ],
)
def test_scales(
    tasks: tuple[str, ...], options: ScoringOptions, expected: dict[str, Scale | None]
) -> None:
    assert scaled([task(name, 10.0, 30.0, began=-5.0) for name in tasks], options) == expected


@pytest.mark.parametrize(
    ("tasks", "options", "words"),
    [
        (["ant", "hopper"], ScoringOptions(scaling=Scaling.RAW), "no common scale: returns of ant"),
        (
            ["ant", "hopper"],
            ScoringOptions(references={"ant": (0.0, 1.0)}),
            "no common scale: hopper has no --reference",
        ),
        (
            ["ant"],
            ScoringOptions(references={"hoper": (0.0, 1.0)}),
            "--reference hoper: no compared runs are of that task, but ant",
        ),
    ],
)
def test_no_common_scale_is_refused(tasks: list[str], options: ScoringOptions, words: str) -> None:
    with pytest.raises(ComparisonError, match=words):
        scaled([task(name, 10.0, 30.0) for name in tasks], options)


def test_a_scale_without_a_width_is_refused() -> None:
    with pytest.raises(ComparisonError, match="begin and end with a return of 4"):
        scaled([task("ant", 4.0, 4.0, began=4.0)], ScoringOptions(scaling=Scaling.MINMAX))


def test_a_scale_by_hand() -> None:
    assert Scale(-10.0, 30.0, given=True).of(np.array([-10.0, 10.0, 50.0])).tolist() == [
        0,
        0.5,
        1.5,
    ]
