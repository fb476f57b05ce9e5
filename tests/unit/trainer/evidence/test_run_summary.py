"""The summary of a live, a finished and a killed run."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_summary import RunSummary
from drivetrain_api.attempt import AttemptSpec
from drivetrain_trainer.evidence.fence import FencedError
from drivetrain_trainer.evidence.run_directory import RunDirectory
from drivetrain_trainer.evidence.run_summary import SummaryWriter, finish_abandoned

MakeAttempt = Callable[..., AttemptSpec]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def start(make_attempt: MakeAttempt, tmp_path: Path, clock: Clock) -> Callable[..., Any]:
    def begin(attempt: int = 1) -> tuple[RunDirectory, SummaryWriter]:
        spec = make_attempt(attempt, seed=3)
        directory = RunDirectory.claim(spec, tmp_path)
        return directory, SummaryWriter.start(directory, spec.spec, clock=clock)

    return begin


def read(directory: RunDirectory) -> RunSummary:
    return RunSummary.from_json(directory.run_summary.read_text())


def test_is_there_from_the_start(start: Any) -> None:
    directory, _ = start()
    summary = read(directory)
    assert summary.status is RunStatus.RUNNING
    assert summary.metric_schema_version == 1
    assert (summary.algo, summary.task, summary.sim_backend) == ("sac", "half_cheetah", "mujoco")
    assert summary.log_dir == str(directory.path)
    assert summary.seeds.run == 3
    assert summary.end_time_utc is None
    assert abs((datetime.now(UTC) - summary.start_time_utc).total_seconds()) < 60


def test_is_written_no_more_often_than_every_two_seconds(start: Any, clock: Clock) -> None:
    directory, writer = start()
    seen = []
    for iteration in range(1, 101):
        clock.now += 0.125
        writer.iteration_done(iteration, iteration * 64)
        seen.append(read(directory).completed_iterations)
    assert sorted(set(seen)) == [0, 16, 32, 48, 64, 80, 96]


def test_figures_their_best_and_the_tail(start: Any, clock: Clock) -> None:
    directory, writer = start()
    for iteration in range(1, 251):
        clock.now += 0.5 if iteration <= 150 else 0.25
        writer.iteration_done(iteration, iteration * 10)
    for reward in (5.0, 9.0, math.nan, 7.0):
        writer.note(final_mean_reward=reward, evaluated_return=-reward)
    writer.note(final_env_steps_per_sec=math.inf, last_checkpoint="checkpoints/x")
    writer.write()
    summary = read(directory)
    assert (summary.completed_iterations, summary.total_env_steps) == (250, 2500)
    assert (summary.final_mean_reward, summary.best_mean_reward) == (7.0, 9.0)
    assert (summary.evaluated_return, summary.best_evaluated_return) == (-7.0, -5.0)
    assert summary.final_env_steps_per_sec is None
    assert summary.last_checkpoint == "checkpoints/x"
    assert summary.tail_iteration_count == 100
    assert summary.tail_env_steps_per_sec == pytest.approx(10 / 0.25)
    assert summary.wall_time_sec == pytest.approx(150 * 0.5 + 100 * 0.25)


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.INTERRUPTED])
def test_the_last_word(start: Any, status: RunStatus) -> None:
    directory, writer = start()
    writer.iteration_done(1, 10)
    assert writer.finish(status) == read(directory)
    summary = read(directory)
    assert (summary.status, summary.total_env_steps, summary.error) == (status, 10, None)
    assert summary.end_time_utc is not None


def test_a_failure_is_named_and_bounded(start: Any) -> None:
    directory, writer = start()
    writer.finish(RunStatus.FAILED, ValueError("x" * 10_000))
    summary = read(directory)
    assert (summary.status, summary.error_type) == (RunStatus.FAILED, "ValueError")
    assert summary.error == "x" * 4096


def test_a_resumed_run_keeps_its_start_and_its_best(start: Any, clock: Clock) -> None:
    directory, writer = start()
    writer.iteration_done(7, 70)
    writer.note(final_mean_reward=9.0, evaluated_return=8.0, best_checkpoint="checkpoints/b")
    writer.finish(RunStatus.FAILED, RuntimeError("out of luck"))
    before = read(directory)
    clock.now += 1000
    _, again = start(attempt=2)
    again.note(final_mean_reward=1.0, evaluated_return=1.0)
    again.write()
    summary = read(directory)
    assert summary.status is RunStatus.RUNNING
    assert summary.start_time_utc == before.start_time_utc
    assert (summary.best_mean_reward, summary.best_evaluated_return) == (9.0, 8.0)
    assert (summary.completed_iterations, summary.total_env_steps) == (7, 70)
    assert summary.best_checkpoint == "checkpoints/b"
    assert (summary.error, summary.end_time_utc, summary.wall_time_sec) == (None, None, 0.0)


@pytest.mark.parametrize("content", ["", "{", '{"status": "fine"}', "[" * 100_000])
def test_a_spoilt_summary_does_not_stop_a_resume(start: Any, content: str) -> None:
    directory, _ = start()
    directory.run_summary.write_text(content)
    start(attempt=2)
    assert read(directory).status is RunStatus.RUNNING


def test_an_older_attempt_may_not_write_it(start: Any, clock: Clock) -> None:
    directory, old = start()
    _, new = start(attempt=2)
    new.iteration_done(5, 50)
    new.write()
    clock.now += 10
    for forbidden in (lambda: old.iteration_done(9, 90), lambda: old.finish(RunStatus.FAILED)):
        with pytest.raises(FencedError):
            forbidden()
    assert read(directory).total_env_steps == 50


def test_a_full_disk_keeps_the_last_summary(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, writer = start()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            writer.finish(RunStatus.COMPLETED)
    assert read(directory).status is RunStatus.RUNNING


class TestAbandoned:
    def test_a_running_summary_gets_its_end(self, start: Any) -> None:
        directory, writer = start()
        writer.iteration_done(3, 30)
        writer.write()
        ended = finish_abandoned(
            directory.run_summary, directory.fence, RunStatus.FAILED, "Killed", "by SIGKILL"
        )
        summary = read(directory)
        assert summary == ended
        assert (summary.status, summary.error_type, summary.error) == (
            RunStatus.FAILED,
            "Killed",
            "by SIGKILL",
        )
        assert summary.total_env_steps == 30
        assert summary.end_time_utc is not None

    def test_what_is_known_of_its_end_joins_the_manifest(self, start: Any) -> None:
        directory, writer = start()
        begun = {
            "schema_version": 1,
            "inference_ring_capacity": 1,
            "collector_metrics_interval": 1,
        }
        writer.follow_manifest(lambda: begun)
        writer.write()
        finish_abandoned(
            directory.run_summary,
            directory.fence,
            RunStatus.FAILED,
            "Killed",
            "by SIGKILL",
            shutdown={"classification": "learner_failure"},
        )
        assert read(directory).runtime_manifest == begun | {
            "shutdown": {"classification": "learner_failure"}
        }

    def test_one_that_ended_is_left_as_it_is(self, start: Any) -> None:
        directory, writer = start()
        writer.finish(RunStatus.COMPLETED)
        before = directory.run_summary.read_bytes()
        finish_abandoned(directory.run_summary, directory.fence, RunStatus.FAILED, "X", "x")
        assert directory.run_summary.read_bytes() == before

    def test_none_and_a_spoilt_one_are_nothing(self, start: Any) -> None:
        directory, _ = start()
        for content in ("{", None):
            if content is None:
                directory.run_summary.unlink()
            else:
                directory.run_summary.write_text(content)
            args = (directory.run_summary, directory.fence, RunStatus.FAILED, "X", "x")
            assert finish_abandoned(*args) is None

    def test_a_newer_attempts_is_not_touched(self, start: Any) -> None:
        directory, _ = start()
        start(attempt=2)
        with pytest.raises(FencedError):
            finish_abandoned(
                directory.run_summary, directory.fence, RunStatus.FAILED, "Killed", "x"
            )


def test_the_file_is_strict_json_of_the_contract(start: Any) -> None:
    directory, writer = start()
    writer.note(final_mean_reward=-math.inf)
    writer.write()
    document = json.loads(directory.run_summary.read_text(), parse_constant=pytest.fail)
    assert set(document) == set(RunSummary.model_fields)
