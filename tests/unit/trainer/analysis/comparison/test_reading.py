"""How a run stands, and what of it is compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.compared_runs import MadeUp, flat, write_suite

from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_trainer.analysis.comparison.inputs import Found, find
from drivetrain_trainer.analysis.comparison.reading import ComparedRun, Standing, read_runs


def read(path: Path) -> ComparedRun:
    (run,) = read_runs([Found("side", path)], print)
    return run


def test_a_complete_run(tmp_path: Path) -> None:
    spec = {"experiment": {"suite": "s", "run_idx": 3, "invocation": "i"}}
    run = read(flat(5.0, reports=10, spec=spec).write(tmp_path / "run", 7))
    assert (run.standing, run.reason, run.complete) == (Standing.COMPLETED, None, True)
    assert (run.task, run.algo, run.seed, run.run_idx) == ("half_cheetah", "sac", 7, 3)
    assert run.budget == 100_000
    assert run.evaluated is not None
    assert run.evaluated.steps.tolist() == [10_000, 20_000]
    assert run.training is not None
    assert len(run.training) == 10
    assert run.began == run.training.wall_times[0]
    assert run.settings["algo.batch_size"] == "256"
    assert not any(name.startswith("run.") for name in run.settings)


@pytest.mark.parametrize(
    ("status", "standing"),
    [
        ("running", Standing.RUNNING),
        ("interrupted", Standing.INTERRUPTED),
        ("failed", Standing.FAILED),
    ],
)
def test_what_is_not_complete(tmp_path: Path, status: str, standing: Standing) -> None:
    told = {"status": status, "error_type": "MemoryError", "error": "no memory"}
    run = read(flat(5.0, reports=5, summary=told).write(tmp_path / "run", 0))
    assert (run.standing, run.reason) == (standing, "MemoryError: no memory")
    assert run.has_curve
    assert not run.complete


def test_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    run = read(MadeUp(float("nan"), reports=5).write(tmp_path / "run", 0))
    assert (run.evaluated, run.training, run.has_curve) == (None, None, False)


def test_what_cannot_be_read_stands_with_its_reason(tmp_path: Path) -> None:
    torn = flat(5.0, reports=5).write(tmp_path / "torn", 0)
    (torn / "run_summary.json").write_text('{"status": "comp')
    bare = flat(5.0, reports=5).write(tmp_path / "bare", 0)
    (bare / "run_summary.json").unlink()
    for path in (torn, bare, tmp_path / "missing"):
        run = read(path)
        assert run.standing is Standing.UNREADABLE
        assert run.reason is not None
        assert str(path) in run.reason


def test_members_of_a_suite(tmp_path: Path) -> None:
    states = {
        ("v", 0): (MemberState.PENDING, None),
        ("v", 1): (MemberState.FAILED, "exit code 137: out of memory"),
        ("v", 2): (MemberState.COMPLETE, None),
        ("v", 3): (MemberState.SUSPENDED, "the suite was stopped"),
    }
    root = write_suite(
        tmp_path / "s", {"v": lambda _: flat(1.0, reports=5)}, range(5), states=states
    )
    runs = read_runs(find([str(root)]), print)
    assert [(run.seed, run.standing, run.reason) for run in runs] == [
        (0, Standing.WAITING, "not begun"),
        (1, Standing.FAILED, "exit code 137: out of memory"),
        (2, Standing.UNREADABLE, "its run directory is not there"),
        (3, Standing.WAITING, "the suite was stopped"),
        (4, Standing.COMPLETED, None),
    ]
    assert {run.task for run in runs} == {"half_cheetah"}


def test_a_suite_knows_of_failures_that_the_run_does_not(tmp_path: Path) -> None:
    root = write_suite(tmp_path / "s", {"v": lambda _: flat(1.0, reports=5)}, [0])
    record = root / "suite.json"
    record.write_text(
        record.read_text()
        .replace('"state": "complete"', '"state": "failed"')
        .replace('"reason": null', '"reason": "killed"')
    )
    (run,) = read_runs(find([str(root)]), print)
    assert (run.standing, run.reason) == (Standing.FAILED, "killed")


def test_long_reading_is_told_of_ten_times_at_most(tmp_path: Path) -> None:
    told: list[str] = []
    missing = [Found("side", tmp_path / str(number)) for number in range(37)]
    assert len(read_runs(missing, told.append)) == 37
    assert 5 <= len(told) <= 10
    assert told[0].startswith("reading 4 of 37: ")


def test_the_order_is_that_of_sides_and_seeds(tmp_path: Path) -> None:
    for seed in (11, 2):
        flat(1.0, reports=5).write(tmp_path / f"b/{seed}", seed)
        flat(1.0, reports=5).write(tmp_path / f"a/{seed}", seed)
    runs = read_runs(find([str(tmp_path / "b"), str(tmp_path / "a")]), print)
    assert [(run.side, run.seed) for run in runs] == [("b", 2), ("b", 11), ("a", 2), ("a", 11)]
    assert np.isfinite([run.began for run in runs]).all()
