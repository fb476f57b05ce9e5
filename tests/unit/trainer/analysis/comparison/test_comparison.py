"""Whole comparisons of runs on disk: figures, words, and what is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.compared_runs import MadeUp, flat, write_seeds, write_suite

from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_trainer.analysis.comparison import words
from drivetrain_trainer.analysis.comparison.comparison import compare
from drivetrain_trainer.analysis.comparison.inputs import ComparisonError, find
from drivetrain_trainer.analysis.comparison.reading import read_runs
from drivetrain_trainer.analysis.comparison.result import Comparison, Options
from drivetrain_trainer.analysis.comparison.scoring import ScoringOptions
from drivetrain_trainer.analysis.comparison.statistics import Estimate, Interval

FAST = 200


def compared(*paths: str, **options: Any) -> Comparison:
    given = Options(
        scoring=ScoringOptions(**options.pop("scoring", {})), repetitions=FAST, **options
    )
    return compare(read_runs(find(paths), print), given)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def seeds(
    folder: str, value: Callable[[int], float], count: int = 4, task: str = "hopper", **made: Any
) -> str:
    write_seeds(Path(folder), lambda seed: flat(value(seed), **made), range(count), task)
    return folder


def test_two_sides_by_hand() -> None:
    seeds("a", lambda seed: [1.0, 2.0, 4.0, 90.0][seed])
    seeds("b", lambda seed: [0.0, 2.0, 3.0, -5.0][seed])
    found = compared("a", "b", scoring={"thresholds": {"hopper": 2.0 - 1e-6}})
    assert not found.scaled
    assert [one.side for one in found.sides] == ["a", "b"]
    assert found.side("a").final.value == pytest.approx(3.0, abs=1e-6)
    assert found.side("b").final.value == pytest.approx(1.0, abs=1e-6)
    (pair,) = found.pairs
    # Of 16 pairs: 1 above 0 and -5; 2 above these and half above 2; 4 and 90 above all.
    assert pair.improvement.value == (2 + 2.5 + 4 + 4) / 16
    assert pair.difference.value == pytest.approx(2.0, abs=1e-6)
    assert found.pair("b", "a").difference.value == pytest.approx(-2.0, abs=1e-6)
    ((left, right),) = (task.sides for task in found.tasks)
    assert (left.reached, left.steps_to_threshold) == (3, 10_000)
    assert (right.reached, right.steps_to_threshold) == (2, float("inf"))
    assert left.over_steps.x[[0, -1]].tolist() == [10_000, 100_000]
    assert left.over_time.x[-1] == pytest.approx(6.0 * 49)
    assert found.left_out == ()


def test_a_clock_that_was_set_back_turns_no_curve_over_time_around() -> None:
    write_seeds(Path("a"), lambda _: MadeUp(best=10.0, evaluated=False), range(2), "hopper")
    runs = []
    for run in read_runs(find(["a"]), print):
        assert run.training is not None
        times = run.training.wall_times.copy()
        times[25:] -= 100.0  # of 6 s a report
        runs.append(replace(run, training=replace(run.training, wall_times=times)))
    (side,) = compare(runs, Options(repetitions=FAST)).tasks[0].sides
    assert side.over_time.x[[0, -1]].tolist() == [0.0, 6.0 * 49 - 100.0]
    assert np.all(np.diff(side.over_time.line.value) >= -1e-6)
    assert side.over_time.line.value[-1] == pytest.approx(side.over_steps.line.value[-1])


def test_tasks_weigh_alike_though_one_has_more_seeds() -> None:
    for side, shift in (("a", 0.0), ("b", 1.0)):
        seeds(f"{side}/hopper", lambda _, at=shift: at, 2)  # type: ignore[misc]  # of a loop
        seeds(f"{side}/ant", lambda _, at=shift: 10 * at, 7, "ant")  # type: ignore[misc]  # as above
    found = compared("a", "b")
    assert [task.scores.task for task in found.tasks] == ["ant", "hopper"]
    assert found.scaled
    assert (found.side("a").runs, found.side("a").fewest) == (9, 2)
    assert found.side("b").final.value == pytest.approx(1.0, abs=1e-6)
    assert found.pairs[0].ours == "b"
    assert found.pairs[0].improvement.value == 1.0
    assert any("scaled within this comparison" in note for note in found.notes)
    given = compared("a", "b", scoring={"references": {"ant": (0.0, 20.0), "hopper": (0.0, 2.0)}})
    assert given.side("b").final.value == pytest.approx(0.5, abs=1e-6)
    assert given.notes == ()


def test_what_takes_no_part_is_listed_and_told_of() -> None:
    states = {
        ("v", 1): (MemberState.FAILED, "out of memory"),
        ("v", 2): (MemberState.PENDING, None),
    }
    Path("s").mkdir()
    write_suite(Path("s"), {"v": lambda seed: flat(1.0 * seed)}, range(5), states=states)
    seeds("b", lambda seed: 1.0 * seed, task="half_cheetah")
    write_seeds(
        Path("b/more"),
        lambda _: flat(1.0, reports=20, summary={"status": "running"}),
        [9],
        "half_cheetah",
    )
    found = compared("s", "b")
    assert {(one.run.side, one.run.seed, one.why) for one in found.left_out} == {
        ("s", 1, "failed: out of memory"),
        ("s", 2, "waiting: not begun"),
        ("b", 9, "running"),
    }
    told = words.caveats(found)
    assert "2 of 5 runs of s take no part (reasons below): if they went badly, " in " ".join(told)
    assert "1 of 5 runs of b takes no part" in " ".join(told)
    every = compared("s", "b", unfinished=True)
    assert {one.run.side for one in every.left_out} == {"s"}
    assert every.tasks[0].scores.budget == 40_000
    assert any("the longest run did 100,000" in note for note in every.notes)


def test_different_budgets_are_compared_at_the_common_one() -> None:
    seeds("a", lambda seed: 1.0 * seed)
    seeds("b", lambda seed: 1.0 * seed, steps=1_000)
    found = compared("a", "b")
    assert found.tasks[0].scores.budget == 50_000
    (note,) = found.notes
    assert note == (
        "hopper: the runs were to do 50,000, 100,000 environment steps; all are compared at "
        "50,000, which all have."
    )


def test_tasks_that_one_side_lacks_are_left_out_and_told() -> None:
    seeds("a/hopper", lambda seed: 1.0 * seed)
    seeds("a/ant", lambda seed: 1.0 * seed, task="ant")
    seeds("b", lambda seed: 1.0 * seed)
    found = compared("a", "b")
    assert [task.scores.task for task in found.tasks] == ["hopper"]
    assert {one.why for one in found.left_out} == {"not every side has ant"}
    assert "Left out since not every side has it: ant." in found.notes


def test_a_seed_that_ran_twice_is_told_of() -> None:
    seeds("a/first", lambda seed: 1.0 * seed)
    seeds("a/again", lambda seed: 1.0 * seed, 2)
    (note,) = compared("a").notes
    assert note.startswith("hopper: a has several runs of seed 0, 1, which may be the same run")


def test_a_side_without_a_complete_run_is_told_of() -> None:
    seeds("a", lambda seed: 1.0 * seed)
    seeds("b", lambda _: 1.0, summary={"status": "failed", "error": "NaN"})
    found = compared("a", "b")
    assert [one.side for one in found.sides] == ["a"]
    assert "b takes no part: it has no complete run with a return." in found.notes
    assert words.headline(found).endswith("; a single side.")


def test_nothing_to_compare_is_refused() -> None:
    seeds("a", lambda _: 1.0, 5, summary={"status": "failed", "error": "NaN"})
    seeds("b", lambda _: 1.0, 1, "ant")
    seeds("c", lambda _: 1.0, 1, "hopper")
    seeds("d", lambda _: float("nan"), 1)
    with pytest.raises(ComparisonError, match=r"a/run_0_seed_0: failed: NaN;.* and 2 more; --unf"):
        compared("a")
    with pytest.raises(ComparisonError, match=r"no task in common .b: ant; c: hopper"):
        compared("b", "c")
    with pytest.raises(ComparisonError, match=r"d/run_0_seed_0: it has reported no return$"):
        compared("d")


def test_the_same_seed_gives_the_same_comparison() -> None:
    for side in "ab":
        write_seeds(Path(side), lambda seed: MadeUp(9.0 + seed, noise=1.0), range(7), "hopper")
    first, second = compared("a", "b", seed=3), compared("a", "b", seed=3)
    assert first.sides[0].final == second.sides[0].final
    assert first.pairs == second.pairs
    assert np.array_equal(
        first.tasks[0].sides[0].over_steps.line.low,  # type: ignore[arg-type]  # seven seeds have one
        second.tasks[0].sides[0].over_steps.line.low,  # type: ignore[arg-type]  # as above
    )
    assert first.sides[0].final != compared("a", "b", seed=4).sides[0].final


@pytest.mark.parametrize(
    ("ours", "theirs", "count", "beginning"),
    [
        (100.0, 1.0, 6, "a is better on hopper: interquartile mean of final evaluated returns 10"),
        (100.0, 1.0, 3, "a seems better on hopper: "),
        (1.0, 100.0, 6, "b is better on hopper: "),
        (5.0, 5.1, 6, "No difference can be told on hopper: b has interquartile mean of final "),
        (5.0, 1.0, 1, "It cannot be told which is better on hopper: a and b have a single seed, "),
    ],
)
def test_headlines(ours: float, theirs: float, count: int, beginning: str) -> None:
    seeds("a", lambda seed: ours + seed, count)
    seeds("b", lambda seed: theirs + seed, count)
    found = compared("a", "b")
    assert words.headline(found).startswith(beginning)
    told = " ".join(words.caveats(found))
    assert ("Few seeds a task" in told) == (count == 3)
    assert ("points without intervals" in told) == (count == 1)


def test_the_headline_names_the_best_and_the_next() -> None:
    for name, value in (("a", 1.0), ("b", 50.0), ("c", 20.0)):
        seeds(name, lambda seed, at=value: at + seed, 5)  # type: ignore[misc]  # of a loop
    found = compared("a", "b", "c")
    assert words.headline(found).startswith("b is better")
    assert "of c, the next best; a run of b ends above one of c in 100 %" in words.headline(found)
    assert len(found.pairs) == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.91234, "0.912"),
        (-0.0481, "-0.0481"),
        (9.999, "10.0"),
        (87.34, "87.3"),
        (354.2, "354"),
        (999.6, "1,000"),
        (4612.4, "4,612"),
        (-12345.6, "-12,346"),
        (float("inf"), "-"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert words.number(value) == text


def test_words_for_figures() -> None:
    assert words.estimate(Estimate(1.0, None)) == "1.00"
    assert words.estimate(Estimate(1.0, Interval(0.5, 2.0))) == "1.00 [0.500, 2.00]"
    assert words.share(Estimate(0.5, None)) == "50 %"
    assert words.share(Estimate(0.5, Interval(0.256, 1.0))) == "50 % [26, 100]"
    assert [words.steps(value) for value in (500, 41_000, 1.25e6, float("inf"))] == [
        "500",
        "41k",
        "1.25M",
        "never",
    ]
    assert [words.duration(value) for value in (0.8, 75.0)] == ["0.8 s", "1 min 15 s"]
    assert words.clean("a\x1b[31m\udc80\nb\u202e") == "a?[31m?\nb?"
