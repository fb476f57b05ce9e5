"""The guide's backend, taken from its page: installed, named, and written to."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain_api.metrics import Owner
from drivetrain_trainer.telemetry.backends.base import BackendContext
from drivetrain_trainer.telemetry.logger import TrainingLogger

GUIDE = Path(__file__).parents[4] / "docs" / "guide" / "telemetry.md"


def block(language: str) -> str:
    """The page's only block of a language."""
    (found,) = re.findall(
        rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE
    )
    return str(found)


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path_factory.mktemp("site")
    (site / "csv_logger.py").write_text(block("python"))
    info = site / "csv_logger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: csv-logger\nVersion: 1.0\n")
    points = block("toml").replace("project.entry-points.", "").replace('"', "")
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.usefixtures("installed")
def test_the_guides_backend_works_as_it_stands(
    make_context: Callable[..., BackendContext],
) -> None:
    context = make_context(logger="jsonl,csv")
    with TrainingLogger.open(context) as logger:
        for step, reward in ((100, 1.5), (200, -2.0)):
            parts = {Owner.COLLECTOR: {"Train/mean_reward": reward}}
            logger.submit(parts, env_steps=step, iteration=step // 100)
        logger.submit({Owner.LEARNER: {"Loss/actor": 1.0}}, env_steps=300, iteration=3)
    assert (context.directory / "rewards.csv").read_text().split() == ["100,1.5", "200,-2.0"]
    health = logger.stats.backends[1]
    assert (health.name, health.written, health.lost, health.error) == ("csv", 3, 0, None)
    assert health.details == {"file": "rewards.csv"}


def test_every_line_of_the_guides_jsonl_is_as_it_is_written() -> None:
    text = GUIDE.read_text()
    header, report = re.findall(r'^\{"(?:metric_schema_version|step)".*\}$', text, re.MULTILINE)
    assert '"metric_schema_version":1' in header
    assert '"Train/target_q_max":"Infinity"' in report
