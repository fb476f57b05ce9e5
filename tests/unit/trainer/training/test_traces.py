"""Traces of real ranks: real collectors and physics, killed ones too."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from rank_command import COMMAND, environment, write_attempt
from tiny_run import TINY, Ranks

from drivetrain_api.compose import layered
from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer.tracing.describe import describe
from drivetrain_trainer.tracing.merge import merge
from drivetrain_trainer.tracing.reader import locate, read
from drivetrain_trainer.tracing.summary import TraceSummary, summarize
from drivetrain_trainer.tracing.validate import Verdict, validate

TRACED = {"trace_enabled": True}
LONG: dict[str, Any] = {"total_env_steps": 10**6}
TIMEOUT = 60.0
LEARNER_SPANS = {
    "Iteration",
    "Collector Wait",
    "Inference",
    "Inference H2D",
    "Inference Forward",
    "Inference D2H",
    "Collector Release",
    "Replay Batch Wait",
    "Ingress Commit",
    "Replay Sample",
    "Learning",
    "Update",
    "Report",
    "Evaluation",
    "Checkpoint",
}
COLLECTOR_SPANS = {
    "Environment Start",
    "Inference Request",
    "Learner Action Wait",
    "Env Step",
    "Action Validate",
    "Apply Action",
    "Backend Step",
    "Update State",
    "Reset Done",
    "Transition Extract",
    "Replay Write",
    "Metrics Publish",
}


def checked(run: Path) -> tuple[TraceSummary, Verdict]:
    """Summary and verdict of a run directory, which must be sound."""
    files = locate(run)
    verdict = validate(files)
    assert verdict.sound, verdict.faults
    return summarize(files), verdict


def spans(summary: TraceSummary, process: str) -> dict[str, int]:
    """Count by name of a process's main thread."""
    track = summary.track(process, "main")
    assert track is not None
    return {name: spent.count for name, spent in track.spans.items()}


def test_a_run_leaves_a_sound_trace_of_every_phase_and_tick(ranks: Ranks) -> None:
    attempt = ranks.attempt(training=TRACED, evaluator={"interval": 60, "episodes": 1})
    assert attempt.run() is ExitCode.DONE
    summary, verdict = checked(attempt.directory)
    assert attempt.summary.trace_path == str(attempt.directory / "traces")
    assert [path.name for path in locate(attempt.directory)] == [
        "rank0-collector-a1.trace.json",
        "rank0-learner-a1.trace.json",
    ]
    assert [process.name for process in summary.processes.values()] == [
        "rank 0 collector",
        "rank 0 learner",
    ]
    assert all(process.ended for process in summary.processes.values())
    learner, collector = spans(summary, "rank 0 learner"), spans(summary, "rank 0 collector")
    assert set(learner) == LEARNER_SPANS
    assert set(collector) == COLLECTOR_SPANS
    # 120 env steps of 2 envs are 60 ticks; 8 of them come before learning.
    ticks, updates = 60, 2 * (60 - 8)
    assert learner["Inference Forward"] == learner["Iteration"] == collector["Env Step"] == ticks
    # The normaliser learns of a tick's observations once its answers are out.
    assert learner["Inference"] == 2 * ticks
    assert learner["Update"] == updates
    assert learner["Evaluation"] == 2
    # The last request is never answered: the run ends.
    assert (verdict.arrows, verdict.cut_arrows) == (ticks, 1)
    assert summary.overlaps[0, 1][0].measured
    assert all(spent.least > 0 for spent in summary.latencies.values())


def test_without_the_option_nothing_is_written(ranks: Ranks) -> None:
    attempt = ranks.attempt()
    assert attempt.run() is ExitCode.DONE
    assert attempt.summary.trace_path is None
    assert not list(ranks.storage.glob("**/*.trace.json"))


@pytest.mark.parametrize(
    "training",
    [
        {"env_steps_per_sync": 3},
        {"inference_slot_capacity": 2},
        {"replay_ingress_slot_rows": 1, "replay_ingress_depth": 1},
    ],
    ids=["three ticks an iteration", "two groups", "rows one by one"],
)
@pytest.mark.slow
def test_other_cadences_leave_whole_arrows(ranks: Ranks, training: dict[str, Any]) -> None:
    attempt = ranks.attempt(training=TRACED | training)
    assert attempt.run() is ExitCode.DONE
    groups = training.get("inference_slot_capacity", 1)
    _, verdict = checked(attempt.directory)
    assert (verdict.arrows, verdict.cut_arrows) == (60 * groups, groups)


@pytest.mark.slow
def test_thread_time_is_beside_each_phase(ranks: Ranks) -> None:
    attempt = ranks.attempt(training=TRACED | {"trace_thread_time": True})
    assert attempt.run() is ExitCode.DONE
    checked(attempt.directory)
    timed = {
        event.name
        for path in locate(attempt.directory)
        for event in read(path)
        if "tdur" in event.fields
    }
    assert timed >= {"Learning", "Inference Forward", "Env Step", "Learner Action Wait", "Report"}


def test_cuda_events_without_cuda_say_once_that_there_is_nothing(
    ranks: Ranks, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt = ranks.attempt(training=TRACED | {"trace_cuda_events": True})
    assert attempt.run() is ExitCode.DONE
    assert capsys.readouterr().out.count("training.trace_cuda_events has nothing to record") == 1
    checked(attempt.directory)


@pytest.mark.slow
def test_runs_share_an_output_folder_and_are_found_through_their_summaries(ranks: Ranks) -> None:
    found = []
    for uid in ("first/run", "second"):
        ranks.uid, ranks.attempts = uid.replace("/", "_"), 0
        attempt = ranks.attempt(training=TRACED | {"trace_output_dir": "all-traces"})
        assert attempt.run() is ExitCode.DONE
        assert attempt.summary.trace_path is not None
        found.append(Path(attempt.summary.trace_path))
        assert len(locate(attempt.directory)) == 2
    assert {path.parent for path in found} == {ranks.storage / "all-traces"}
    assert len(set(found)) == 2


def test_a_resumed_attempt_has_files_of_its_own(ranks: Ranks) -> None:
    first = ranks.attempt(training=TRACED | LONG)
    first.when(lambda: first.env_steps > 30, first.stop.interrupt.set)
    assert first.run() is ExitCode.CHECKPOINTED
    second = ranks.attempt(training=TRACED | {"total_env_steps": first.outcome.env_steps + 40})
    assert second.run() is ExitCode.DONE
    summary, _ = checked(second.directory)
    assert [process.name for process in summary.processes.values()] == [
        "rank 0 collector",
        "rank 0 learner",
        "rank 0 collector (attempt 2)",
        "rank 0 learner (attempt 2)",
    ]
    assert sorted(summary.overlaps) == [(0, 1), (0, 2)]
    merged = merge(locate(second.directory), ranks.storage / "all.json.gz")
    assert validate([merged.path]).sound


@pytest.mark.slow
def test_a_small_bound_keeps_the_end_of_the_run(ranks: Ranks) -> None:
    bound = 1_000_000
    attempt = ranks.attempt(
        algo={"updates_per_step": 1},
        training=TRACED
        | {"trace_max_megabytes": 1, "total_env_steps": 2 * 750, "log_interval": 50},
    )
    assert attempt.run() is ExitCode.DONE
    summary, verdict = checked(attempt.directory)
    assert len(locate(attempt.directory)) == 4
    assert sum(path.stat().st_size for path in locate(attempt.directory)) <= 2 * bound
    assert all(process.window_moved for process in summary.processes.values())
    assert verdict.arrows > 200
    assert "Environment Start" not in spans(summary, "rank 0 collector")
    assert "Checkpoint" in spans(summary, "rank 0 learner")


def test_a_killed_collector_leaves_traces_that_say_so(ranks: Ranks) -> None:
    attempt = ranks.attempt(training=TRACED | LONG)
    attempt.when(
        lambda: attempt.env_steps > 200, lambda: os.kill(attempt.collector.pid, signal.SIGKILL)
    )
    assert attempt.run() is ExitCode.FAILED
    summary, _ = checked(attempt.directory)
    words = describe(summary)
    assert "rank 0 collector: not ended; it was killed, or still runs" in words
    assert "rank 0 learner: not ended" not in words


class Job:
    """Ranks as processes of their own; killed at the end."""

    def __init__(self, folder: Path, world_size: int, training: dict[str, Any]) -> None:
        spec = layered(TINY, {"training": training, "topology": {"ranks_per_node": world_size}})
        write_attempt(folder, spec)
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.ranks = []
        for rank in range(world_size):
            group = {"WORLD_SIZE": world_size, "RANK": rank, "LOCAL_RANK": rank}
            group |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            env = environment() | {name: str(value) for name, value in group.items()}
            with (folder / f"log-{rank}").open("wb") as log:
                process = subprocess.Popen(COMMAND, cwd=folder, env=env, stdout=log, stderr=log)
            self.ranks.append(process)

    @property
    def directory(self) -> Path:
        (summary,) = self.folder.glob("logs/*/*/*/run_summary.json")
        return summary.parent

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline
            assert all(rank.poll() is None for rank in self.ranks), self.logs
            time.sleep(0.01)

    @property
    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("log-*")))

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()


@pytest.fixture
def job(tmp_path: Path) -> Any:
    """Starts jobs below `tmp_path`."""
    jobs: list[Job] = []

    def start(world_size: int, training: dict[str, Any]) -> Job:
        jobs.append(Job(tmp_path, world_size, training))
        return jobs[-1]

    yield start
    for started in jobs:
        started.close()


@pytest.mark.slow
def test_two_ranks_in_one_file(job: Any, tmp_path: Path) -> None:
    two = job(2, TRACED | {"total_env_steps": 2 * 120})
    assert [rank.wait(TIMEOUT) for rank in two.ranks] == [0, 0], two.logs
    files = locate(two.directory)
    assert len(files) == 4
    merged = merge(files, tmp_path / "all.json.gz")
    verdict = validate([merged.path])
    assert verdict.sound, verdict.faults
    assert (verdict.arrows, verdict.cut_arrows) == (2 * 60, 2)
    summary = summarize([merged.path])
    for rank in range(2):
        assert set(spans(summary, f"rank {rank} learner")) >= {"Gradient Sync", "Learning"}
        assert spans(summary, f"rank {rank} collector")["Env Step"] == 60
    assert sorted(summary.overlaps) == [(0, 1), (1, 1)]


@pytest.mark.slow
def test_a_killed_learner_leaves_traces_that_can_be_read_live_and_after(job: Any) -> None:
    run = job(1, TRACED | LONG)

    def ticked() -> bool:
        paths = list(run.folder.glob("logs/*/*/*/traces/*.trace.json"))
        return len(paths) == 2 and all(path.stat().st_size > 200_000 for path in paths)

    run.until(ticked)
    live, _ = checked(run.directory)
    assert not any(process.ended for process in live.processes.values())
    collector = psutil.Process(run.ranks[0].pid).children()
    run.ranks[0].kill()
    run.ranks[0].wait()
    psutil.wait_procs(collector, TIMEOUT)
    summary, verdict = checked(run.directory)
    assert verdict.arrows > 50
    assert summary.events >= live.events
    assert "rank 0 learner: not ended" in describe(summary)
