"""A pair of short runs that were really trained, compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.tiny_run import Ranks

from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer.analysis.comparison.document import ComparisonDocument
from drivetrain_trainer.cli.compare import compare


@pytest.mark.slow
def test_two_trained_runs(tmp_path: Path) -> None:
    paths = []
    for name, rate in (("slow", 1e-4), ("fast", 1e-2)):
        attempt = Ranks(tmp_path / name, uid=name).attempt(
            algo={"critic_learning_rate": rate},
            training={"logger": "tensorboard"},
            evaluator={"interval": 60, "episodes": 1},
        )
        assert attempt.run() is ExitCode.DONE
        paths.append(f"{name}={attempt.directory}")
    report = tmp_path / "report.html"
    result = CliRunner().invoke(compare, [*paths, "--json", "-o", str(report)])
    assert result.exit_code == 0, result.output
    document = ComparisonDocument.from_json(result.stdout)
    assert document.headline.startswith("It cannot be told which is better on inverted_pendulum: ")
    (task,) = document.tasks
    assert task.metric == "evaluated"
    assert task.env_steps == 120
    assert all(side.final.value >= 1.0 for side in task.sides)
    assert [one.name for one in document.settings_that_differ] == ["algo.critic_learning_rate"]
    trained = {one.side: one for one in document.times if one.stage.endswith("_train")}
    assert all(one.total_seconds > 0 for one in document.times)
    assert set(trained) == {"slow", "fast"}
    assert {run.standing for run in document.runs} == {"completed"}
    assert "<svg" in report.read_text()
