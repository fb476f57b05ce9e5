"""Real ranks and what their one submission a report becomes: every reader, and after faults."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tiny_run import Attempt, Ranks

from drivetrain_api.artifacts.run_config import RunConfig
from drivetrain_api.digest import PROGRESS_LIMIT, decode
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.metrics import METRICS, Family, MetricSchema, Owner, Unit
from drivetrain_trainer.evidence.checkpoint import load_part
from drivetrain_trainer.evidence.checkpoint_manifest import LEARNER_PART
from drivetrain_trainer.training.progress import decimal
from drivetrain_trainer.training.reports import SMOOTHED_REPORTS

EXAMPLE = Path(__file__).parents[4] / "examples" / "custom-task"
POINT_REACH = {"name": "point_reach", "entry_point": "point_reach:task"}
FAILING = """
from drivetrain_trainer.telemetry.backends.base import BackendCapabilities

class Failing:
    name = "failing"
    capabilities = BackendCapabilities(close_seconds=0.1)
    details = {}
    def __init__(self, context): pass
    def open(self): pass
    def write(self, record): raise ConnectionError("the server is gone")
    def flush(self): pass
    def close(self): pass

class Hanging(Failing):
    name = "hanging"
    def open(self):
        import threading
        threading.Event().wait()
"""


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's task, and backends of somebody else, on the path of ranks and collectors."""
    site = tmp_path / "site"
    info = site / "failing-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "failing_backends.py").write_text(FAILING)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: failing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[drivetrain.loggers]\nfailing = failing_backends:Failing\n"
        "hanging = failing_backends:Hanging\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(site))


def json_lines(attempt: Attempt) -> list[dict[str, Any]]:
    text = (attempt.directory / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def events(attempt: Attempt) -> list[tuple[int, dict[str, float]]]:
    found = []
    for path in sorted(attempt.directory.glob("events.out.tfevents.*")):
        for event in EventFileLoader(str(path)).Load():
            values = {value.tag: value.tensor.float_val[0] for value in event.summary.value}
            if values:
                found.append((event.step, values))
    return found


def test_every_reader_gets_the_same_values_of_the_same_tags(ranks: Ranks) -> None:
    attempt = ranks.attempt(
        task=POINT_REACH | {"overrides": {"episode_length": 7}},
        training={"logger": "tensorboard, jsonl"},
    )
    assert attempt.run() is ExitCode.DONE
    header, *records = json_lines(attempt)
    assert (header["metric_schema_version"], header["attempt"]) == (1, 1)
    persisted = events(attempt)
    assert [record["step"] for record in records] == [step for step, _ in persisted]
    for record, (_, values) in zip(records, persisted, strict=True):
        assert set(record["values"]) == set(values)
        for tag, value in record["values"].items():
            np.testing.assert_equal(np.float32(float(value)), np.float32(values[tag]))
    _check_tags(attempt, {tag for record in records for tag in record["values"]})
    _check_readers(attempt, [record for record in records if "Train/iteration" in record["values"]])


def _check_tags(attempt: Attempt, tags: set[str]) -> None:
    """All are of the schema, with the environment's own families, and none is derived."""
    config = RunConfig.from_json((attempt.directory / "run_config.json").read_text())
    schema = MetricSchema().declaring(
        Family(family.prefix, Unit(family.unit), Owner.ENVIRONMENT)
        for family in config.run.metric_families
    )
    for tag in tags:
        schema.lookup(tag)
    for tag in (
        "reach/speed",
        "reach_steps/close",
        "reward/distance",
        "Episode_Termination/time_out",
        "Train/mean_reward",
        "Episode/timeout_rate",
        "Perf/iteration_time",
        "Perf/total_fps",
        "Loss/critic",
    ):
        assert tag in tags
    assert not any("Other" in tag or "Rows" in tag for tag in tags)
    assert not any(tag.startswith("Episode_Reward/") for tag in tags)
    appo = {tag for tag, metric in METRICS.items() if "sac" not in metric.algorithms}
    assert not tags & appo


def _check_readers(attempt: Attempt, records: list[dict[str, Any]]) -> None:
    """The status' progress and the summary are of the same reduced values as the last report."""
    assert attempt.given.scratch is not None
    digest = decode(attempt.given.scratch.progress.read_text(), PROGRESS_LIMIT)
    assert digest is not None
    assert digest.progress is not None
    last: dict[str, float] = {}
    for record in records:
        last |= record["values"]
    assert digest.progress.mean_reward == decimal(last["Train/mean_reward"])
    assert digest.progress.steps_per_second == decimal(last["Perf/total_fps"])
    assert (digest.progress.env_steps, digest.progress.percent) == (120, 100)
    assert digest.progress.eta_seconds == 0
    summary = attempt.summary
    assert summary.final_mean_reward == last["Train/mean_reward"]
    assert summary.final_env_steps_per_sec == last["Perf/total_fps"]
    assert summary.final_cycle_wall_ms == pytest.approx(1e3 * last["Perf/iteration_time"])
    rows_a_second = 2 * 16 / last["Perf/iteration_time"]
    assert summary.final_learner_replay_rows_per_sec == pytest.approx(rows_a_second)
    telemetry = summary.telemetry
    assert telemetry is not None
    assert (telemetry.reports, telemetry.overfull_timelines) == (len(records), 0)
    written = len(json_lines(attempt)) - 1
    assert [(b.name, b.written, b.lost, b.error) for b in telemetry.backends] == [
        ("tensorboard", written, 0, None),
        ("jsonl", written, 0, None),
    ]


@pytest.mark.parametrize("interval", [5, 7], ids=["ends with a report", "ends between two"])
def test_a_tag_has_one_value_a_step_to_the_end(ranks: Ranks, interval: int) -> None:
    attempt = ranks.attempt(training={"logger": "jsonl", "log_interval": interval})
    assert attempt.run() is ExitCode.DONE
    _, *records = json_lines(attempt)
    written = [(record["step"], tag) for record in records for tag in record["values"]]
    assert [pair for pair, count in Counter(written).items() if count > 1] == []
    last = {tag for step, tag in written if step == 120}
    assert {"Perf/total_fps", "Train/mean_reward", "timeperf/checkpoint_save"} <= last
    # The rate is that of the run, not of a moment after the last iteration.
    assert attempt.summary.final_cycle_wall_ms is not None
    assert attempt.summary.completed_iterations == 60


def test_a_timeout_rate_comes_with_the_first_episode_that_ended(ranks: Ranks) -> None:
    attempt = ranks.attempt(
        task=POINT_REACH | {"overrides": {"episode_length": 30}},
        training={"logger": "jsonl", "log_interval": 1},
    )
    assert attempt.run() is ExitCode.DONE
    reports = [r for r in json_lines(attempt) if "Train/iteration" in r.get("values", {})]
    having = [r["iteration"] for r in reports if "Episode/timeout_rate" in r["values"]]
    assert having
    assert having[0] >= 29, "two environments, 30 steps an episode"
    rewarded = [r["iteration"] for r in reports if "Train/mean_reward" in r["values"]]
    assert rewarded == having


def test_backends_that_fail_or_hang_stop_nothing_and_are_told_in_the_summary(ranks: Ranks) -> None:
    attempt = ranks.attempt(training={"logger": "failing,jsonl,hanging"})
    with capture_logs() as logs:
        assert attempt.run() is ExitCode.DONE
    told = attempt.summary.telemetry
    assert told is not None
    failing, jsonl, hanging = told.backends
    assert failing.error == "write: ConnectionError: the server is gone"
    assert (failing.written, failing.lost) == (0, jsonl.written)
    assert (jsonl.lost, jsonl.error) == (0, None)
    assert (hanging.written, hanging.lost) == (0, jsonl.written)
    assert hanging.error == "did not finish within 0.1 s"
    assert attempt.outcome.exit_code == 0
    warned = [entry["backend"] for entry in logs if entry["event"].startswith("metric backend")]
    assert sorted(warned) == ["failing", "hanging"]


def test_a_backend_that_is_not_there_is_refused_before_training(ranks: Ranks) -> None:
    with pytest.raises(ValueError, match=r"no logger 'failng' is installed; did you mean failing"):
        ranks.attempt(training={"logger": "failng"})


def test_settings_without_effect_are_told_once(ranks: Ranks) -> None:
    attempt = ranks.attempt(training={"wandb_project": "robots", "trace_cuda_events": True})
    with capture_logs() as logs:
        assert attempt.run() is ExitCode.DONE
    told = [entry["key"] for entry in logs if entry["event"] == "setting is without effect"]
    assert told == ["training.wandb_project", "training.trace_cuda_events"]


def test_the_smoothed_reward_lives_in_checkpoints_alone(ranks: Ranks) -> None:
    """The mean of the latest ten reports, over a restart too; no tag holds it."""
    training = {"logger": "jsonl", "log_interval": 1}
    first = ranks.attempt(training=training | {"total_env_steps": 80})
    assert first.run() is ExitCode.DONE
    second = ranks.attempt(training=training | {"total_env_steps": 90})
    assert second.run() is ExitCode.DONE
    latest = second.checkpoints.latest()
    assert latest is not None
    state = load_part(latest, LEARNER_PART)["reports"]
    reports = [r["values"].get("Train/mean_reward") for r in json_lines(second) if "values" in r]
    rewards = [reward for reward in reports if reward is not None]
    kept = state["mean_rewards"]
    assert len(kept) == SMOOTHED_REPORTS == 10
    assert set(kept) <= set(rewards)
    assert state["smoothed_mean_reward"] == pytest.approx(math.fsum(kept) / 10)
    begun = json_lines(second)
    assert [line["attempt"] for line in begun if "attempt" in line] == [1, 2]
    assert not any("smooth" in tag for r in begun for tag in r.get("values", {}))
