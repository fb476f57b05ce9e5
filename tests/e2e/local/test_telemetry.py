"""A two-rank run that keeps everything, and every command that reads it: also after kill -9."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backend_rows import assert_equal, attempts_of, merged, table_of
from command_line import TIMEOUT, CommandLine, command_line, gone, tree, until
from event_files import event_path, make_run, report

from drivetrain_api.metrics import MetricSchema
from drivetrain_api.status import Phase

pytestmark = pytest.mark.slow

PROCESSOR = "DRIVETRAIN_TRACE_PROCESSOR"
"""Names Perfetto's trace_processor_shell, which is asked too where it is there."""
RANKS, ENVS, LOG_INTERVAL, ENV_STEPS = 2, 4, 2, 1200
MANIFEST = f"""
apiVersion: drivetrain.dev/v1alpha1
kind: TrainingRun
metadata:
  name: cheetah
spec:
  algo:
    name: sac
    numEnvs: {ENVS}
    batchSize: 16
    learningStarts: 16
    actorHidden: [16]
    criticHidden: [16]
    replayRows: 10000
  task:
    name: half_cheetah
    overrides:
      episode_length: 40
  topology:
    ranksPerNode: {RANKS}
  training:
    totalEnvSteps: {ENV_STEPS}
    logInterval: {LOG_INTERVAL}
    logger: tensorboard,wandb,jsonl
    wandbMode: offline
    traceEnabled: true
  evaluator:
    interval: 400
    episodes: 1
  checkpoint:
    interval: 400
  restart:
    backoffSeconds: 0
"""
EXPECTED = {
    "Train/iteration",
    "Train/mean_reward",
    "Train/mean_episode_length",
    "Episode/timeout_rate",
    "Loss/actor",
    "Loss/critic",
    "Policy/temperature",
    "Perf/iteration_time",
    "Perf/learning_time",
    "Perf/total_fps",
    "Perf/dp_gradient_sync_ms_per_rank",
    "Perf/collector_env_step_ms",
    "Train/replay_ingress_occupancy",
    "eval-rollout/reward",
    "reward/forward",
    "timeperf/checkpoint_save",
    "train_perf/tokens_per_second",
    "sac_actor/update/version_stats/sample_staleness_theta_avg",
}
"""A few of each kind."""
WAY = ("request", "inference", "response", "env step", "ingress write", "commit")


MEASURED = {
    "Learning": ("Perf/learning_time", 1e6),
    "Inference": ("Perf/learner_inference_ms", 1e3),
    "Collector Wait": ("Perf/learner_collector_wait_ms", 1e3),
    "Replay Sample": ("Perf/learner_replay_sample_ms", 1e3),
}
"""Span of the learner -> the tag that says how long it took, and its unit in microseconds."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with command_line(tmp_path_factory.mktemp("finished"), MANIFEST) as made:
        assert made.run().wait(TIMEOUT) == 0, (made.folder / "stderr").read_text()
        yield made


def directory(shell: CommandLine) -> Path:
    (found,) = shell.directories()
    return found


def events_of(shell: CommandLine, rank: int, role: str) -> list[dict[str, Any]]:
    """A finished process's trace, as any reader of JSON takes it."""
    path = directory(shell) / "traces" / f"rank{rank}-{role}-a1.trace.json"
    events: list[dict[str, Any]] = json.loads(path.read_text())
    return events


def test_every_backend_holds_the_same_canonical_values(finished: CommandLine) -> None:
    (attempt,) = attempts_of(directory(finished))
    assert_equal(attempt)
    tags = {tag for _, values in attempt.jsonl for tag in values}
    assert tags >= EXPECTED, EXPECTED - tags
    for tag in tags:
        MetricSchema().lookup(tag)
    summary = json.loads((directory(finished) / "run_summary.json").read_text())
    assert summary["metric_schema_version"] == 1
    assert [
        (backend["name"], backend["written"], backend["lost"], backend["error"])
        for backend in summary["telemetry"]["backends"]
    ] == [(name, len(attempt.jsonl), 0, None) for name in ("tensorboard", "wandb", "jsonl")]


@pytest.mark.parametrize("span", MEASURED)
def test_values_are_the_unsmoothed_means_of_what_the_trace_shows(
    finished: CommandLine, span: str
) -> None:
    tag, unit = MEASURED[span]
    (attempt,) = attempts_of(directory(finished))
    reported = [values[tag] * unit for _, values in attempt.jsonl if tag in values]
    shown = np.mean([iterations_of(finished, rank, span) for rank in range(RANKS)], axis=0)
    assert len(reported) == ENV_STEPS // (RANKS * ENVS * LOG_INTERVAL)
    by_report = shown.reshape(-1, LOG_INTERVAL).mean(axis=1)
    np.testing.assert_allclose(reported, by_report, atol=0.01)
    assert len(set(reported)) > len(reported) // 2


def iterations_of(shell: CommandLine, rank: int, span: str) -> list[float]:
    """Microseconds of a span in each iteration of a learner."""
    events = [event for event in events_of(shell, rank, "learner") if event["ph"] == "X"]
    iterations = [event for event in events if event["name"] == "Iteration"]
    return [
        sum(
            event["dur"]
            for event in events
            if event["name"] == span and 0 <= event["ts"] - each["ts"] < each["dur"]
        )
        for each in iterations
    ]


def test_the_trace_shows_every_tick_from_process_to_process(finished: CommandLine) -> None:
    names = set()
    ways: dict[int, list[tuple[float, str, str, str]]] = {}
    for rank in range(RANKS):
        for role in ("learner", "collector"):
            for event in events_of(finished, rank, role):
                if event["name"] == "process_name":
                    names.add(event["args"]["name"])
                if event["name"] == "tick":
                    at = (event["ts"], event["ph"], event["args"]["at"], f"{role} {rank}")
                    ways.setdefault(event["id"], []).append(at)
    assert names == {f"rank {rank} {role}" for rank in (0, 1) for role in ("learner", "collector")}
    whole = [sorted(way) for way in ways.values() if len(way) == len(WAY)]
    assert len(whole) >= ENV_STEPS // ENVS - RANKS
    for way in whole:
        rank = way[0][3][-1]
        assert [phase for _, phase, _, _ in way] == ["s", "t", "t", "t", "t", "f"]
        assert tuple(at for _, _, at, _ in way) == WAY
        learner, collector = f"learner {rank}", f"collector {rank}"
        assert [process for *_, process in way] == [
            *(collector, learner, learner),
            *(collector, collector, learner),
        ]


def test_every_command_reads_a_finished_run(finished: CommandLine) -> None:
    assert finished.status().phase is Phase.COMPLETE
    assert_readable(finished, {"completed"})


def test_metrics_are_extracted_from_json_lines_alone(finished: CommandLine, tmp_path: Path) -> None:
    source = directory(finished)
    for name in ("metrics.jsonl", "run_summary.json", "run_config.json"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    finished.call("extract", tmp_path)
    np.testing.assert_equal(table_of(tmp_path / "metrics.csv"), merged(attempts_of(source)))


@pytest.mark.timeout(600)  # two runs and each command twice, on a machine that others use too
def test_kill_9_of_everything_leaves_a_readable_run_which_goes_on(tmp_path: Path) -> None:
    with command_line(tmp_path, MANIFEST) as shell:
        kill_beyond_a_checkpoint(shell)
        (attempt,) = attempts_of(directory(shell))
        assert_equal(attempt, cut=True)
        assert_readable(shell, {"live", "quiet", "lost"})
        assert shell.status().phase is Phase.RUNNING

        assert shell.run().wait(TIMEOUT) == 0, (tmp_path / "stderr").read_text()
        first, second = attempts_of(directory(shell))
        assert_equal(first, cut=True)
        assert_equal(second)
        assert second.start > 0
        assert first.jsonl[-1][0] > second.start, "the kill came beyond the checkpoint"
        assert_readable(shell, {"completed"})
        status = shell.status()
        assert status.phase is Phase.COMPLETE
        assert status.progress is not None
        assert status.progress.env_steps == ENV_STEPS


def kill_beyond_a_checkpoint(shell: CommandLine) -> None:
    """Kill the command and all that it started, once reports went on beyond a checkpoint."""
    command = shell.run()

    def beyond() -> bool:
        if not shell.checkpoints():
            return False
        reached = int(shell.checkpoints()[-1].removeprefix("step_"))
        (attempt,) = attempts_of(directory(shell)) or [None]
        return attempt is not None and attempt.jsonl[-1][0] > reached + 100

    until(beyond, "reports beyond a checkpoint", command)
    processes = tree(command)
    assert len(processes) >= 2 + 2 * RANKS
    for process in processes:
        process.suspend()
    command.kill()
    for process in processes:
        process.kill()
    command.wait()
    until(lambda: gone(processes), "the whole tree to be gone")


def assert_readable(shell: CommandLine, conditions: set[str]) -> None:
    """Every command that reads a run reads this one, and says what its files hold.

    Args:
        conditions: What a diagnosis may call the run; it goes by how long it has been quiet.
    """
    run = directory(shell)
    wanted = merged(attempts_of(run))
    for form in ("csv", "json", "parquet"):
        said = shell.call("extract", run, "--format", form, "-o", f"table.{form}").stdout
        assert f"{len(wanted):,} rows" in said
        np.testing.assert_equal(table_of(shell.folder / f"table.{form}"), wanted)
    for name, magic in (("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml")):
        shell.call("plot", run, "-o", name)
        assert (shell.folder / name).read_bytes().startswith(magic)
    assert_trace(shell, run)
    found = json.loads(shell.call("diagnose", run, "--json").stdout)
    assert found["condition"]["state"] in conditions
    assert found["total_env_steps"] == max(wanted)
    assert found["findings"]
    assert f"of {ENV_STEPS:,} steps, iteration" in shell.call("status", shell.name).stdout


def assert_trace(shell: CommandLine, run: Path) -> None:
    verdict = shell.call("trace", "validate", run).stdout
    arrows = int(re.findall(r"([\d,]+) whole arrows", verdict)[0].replace(",", ""))
    assert arrows > 100, verdict
    assert "sound" in verdict
    summary = json.loads(shell.call("trace", "summary", run, "--json").stdout)
    assert summary["overlaps"]
    shell.call("trace", "merge", run, "-o", "all.json")
    assert verdict in shell.call("trace", "validate", "all.json").stdout
    processor = os.environ.get(PROCESSOR)
    if processor is not None:
        queries = shell.folder / "queries.sql"
        queries.write_text("select count(*) as n from flow;")
        shown = subprocess.run(
            [processor, "-q", str(queries), str(shell.folder / "all.json")],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert int(re.findall(r"^\"?(\d+)\"?$", shown, re.MULTILINE)[0]) >= 5 * arrows


def test_a_legacy_run_is_refused_unless_it_is_called_one(tmp_path: Path) -> None:
    with command_line(tmp_path, MANIFEST) as shell:
        values = {"perf/iter_ms": 250.0, "reward/mean_ep100": 1.5, "reward/forward": 2.0}
        run = make_run(tmp_path / "old", [report(10, values), report(20, values)])
        written = event_path(run).read_bytes()
        for command in (("extract", run), ("plot", run), ("diagnose", run)):
            assert "--legacy-unversioned" in shell.call(*command, code=2).stderr
        assert {path.name for path in run.iterdir()} == {event_path(run).name}
        shell.call("extract", run, "--legacy-unversioned", "--algo", "sac")
        expected = {"Perf/iteration_time": 0.25, "Train/mean_reward": 1.5, "reward/forward": 2.0}
        assert table_of(run / "metrics.csv") == {10: expected, 20: expected}
        assert event_path(run).read_bytes() == written
