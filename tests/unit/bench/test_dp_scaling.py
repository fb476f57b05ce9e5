"""How the scaling benchmark reads and compares its runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bench import bench_dp_scaling as bench
from tests.support.event_files import make_run, report
from tests.support.measured_run import make_measured_run, reports

from drivetrain_trainer.analysis.schema_check import SchemaError


def run_of(folder: Path, ranks: int, **values: float) -> Path:
    def warm_then(number: int) -> dict[str, float]:
        learning = 0.0 if number < 3 else 0.017
        tags = {f"Perf/{name}": value for name, value in values.items()}
        return {"Perf/learning_time": learning, **({} if number < 4 else tags)}

    spec = {"topology": {"ranks_per_node": ranks}}
    return make_measured_run(folder, reports(20, warm_then), spec=spec)


def test_figures_are_means_after_warm_up(tmp_path: Path) -> None:
    run = run_of(tmp_path, 2, total_fps=600.0, dp_gradient_sync_ms_per_rank=3.0)
    assert bench.figures(run, 2) == bench.Figures(
        ranks=2,
        steps_per_second=pytest.approx(600.0),
        rows_per_second=pytest.approx(2 * 4 * 256 / 0.020),
        iteration_ms=pytest.approx(20.0),
        sync_ms=pytest.approx(3.0),
    )


def test_a_run_of_another_number_of_ranks_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        bench.figures(run_of(tmp_path, 1), 2)


def test_there_is_no_historical_mode(tmp_path: Path) -> None:
    """Neither a log from before the schema nor one without a stamp is read."""
    legacy = make_run(tmp_path / "legacy", [report(8, {"perf/steps_per_sec": 1.0})])
    with pytest.raises((SchemaError, AssertionError)):
        bench.figures(legacy, 1)
    run = run_of(tmp_path / "run", 1)
    (run / "run_summary.json").unlink()
    with pytest.raises(SchemaError, match="no metric_schema_version"):
        bench.figures(run, 1)


def test_efficiency_is_against_as_many_times_one_rank() -> None:
    alone = [bench.Figures(1, steps, 1000.0, 20.0, 0.0) for steps in (90.0, 100.0, 400.0)]
    two = [bench.Figures(2, steps, 1500.0, 25.0, 5.0) for steps in (140.0, 150.0, 160.0)]
    assert bench.row(two, alone)["efficiency"] == pytest.approx(0.75)
    assert bench.row(alone, alone)["efficiency"] == pytest.approx(1.0)
    steps, sync = bench.results(2, {1: alone, 2: two})
    assert (steps.ours, steps.reference, steps.ratio) == (150.0, 200.0, 0.75)
    assert (sync.ours, sync.reference, sync.ratio) == (5.0, 25.0, 0.2)
    assert sync.met


def test_the_same_work_a_rank_whatever_their_number() -> None:
    one, four = bench.spec(1, 10), bench.spec(4, 10)
    assert {**one, "topology": None} == {**four, "topology": None}
    assert bench.rank_counts()[:2] == [1, 2]
