"""Faults in every phase of a real rank: its class, owner and phase; nothing of it survives."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from tiny_run import Attempt, Ranks

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.shutdown import Classification, LifePhase, Owner, ShutdownReport
from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer.algorithms.sac.agent import SacAgent
from drivetrain_trainer.evaluation.evaluator import Evaluator
from drivetrain_trainer.evidence.checkpoint import CheckpointStore
from drivetrain_trainer.runtime.settings import RuntimeSettings
from drivetrain_trainer.training.ranks import Ranks as RankGroup

pytestmark = pytest.mark.slow
LONG: dict[str, Any] = {"training": {"total_env_steps": 10**6}}
SHM = Path("/dev/shm")


def end_of(attempt: Attempt, code: ExitCode) -> ShutdownReport:
    """Run it; the report, once it is sure that nothing is left."""
    shm = set(SHM.iterdir())
    collector = psutil.Process(attempt.collector.pid)
    brood: list[psutil.Process] = []

    def look() -> None:
        with suppress(psutil.NoSuchProcess):
            brood.extend(collector.children())

    attempt.when(lambda: attempt.env_steps > 0, look)
    assert attempt.run() is code
    assert not collector.is_running()
    assert not [process for process in brood if process.is_running()]
    assert set(SHM.iterdir()) <= shm
    status = {ExitCode.DONE: RunStatus.COMPLETED, ExitCode.CHECKPOINTED: RunStatus.INTERRUPTED}
    assert attempt.summary.status is status.get(code, RunStatus.FAILED)
    report = attempt.outcome.shutdown
    assert report is not None
    assert report.collector is not None
    assert report.collector.pid == attempt.collector.pid
    assert not report.collector.alive
    assert report.cleanup.errors == ()
    return report


def story(report: ShutdownReport) -> tuple[Classification, Owner, LifePhase]:
    return report.classification, report.owner, report.phase


def is_filled(report: ShutdownReport) -> bool:
    """Whether a rank that was in its loop tells of ring, ingress, tick and epoch."""
    ring, ingress = report.inference_ring, report.replay_ingress
    return (
        ring is not None
        and ingress is not None
        and ring.responses > 0
        and ingress.published_sequence > 0
        and report.coordination_tick is not None
        and report.coordination_tick > 0
        and report.inference_epoch is not None
        and report.learner_coordination.replay_rows is not None
    )


def shorten(monkeypatch: pytest.MonkeyPatch, tick_timeout_s: float) -> None:
    """Make the learner less patient than a manifest can."""
    resolve = RuntimeSettings.from_spec
    monkeypatch.setattr(
        RuntimeSettings,
        "from_spec",
        classmethod(lambda _, spec: replace(resolve(spec), tick_timeout_s=tick_timeout_s)),
    )


def before(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, act: Callable[[], object]
) -> None:
    """Have a method of `owner` do `act` first."""
    original = getattr(owner, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        act()
        return original(self, *args, **kwargs)

    monkeypatch.setattr(owner, name, method)


def test_a_completed_run_says_so(ranks: Ranks) -> None:
    attempt = ranks.attempt()
    report = end_of(attempt, ExitCode.DONE)
    assert story(report) == (
        Classification.NORMAL_COMPLETION,
        Owner.LEARNER,
        LifePhase.FINISH,
    )
    assert is_filled(report)
    assert report.exception is None
    assert report.iteration == report.coordination_tick == 60
    assert report.collector is not None
    assert report.collector.exitcode == 0


@pytest.mark.parametrize(
    ("steps", "starts", "phase"),
    [(None, 8, LifePhase.START_UP), (4, 20_000, LifePhase.WARM_UP), (40, 8, LifePhase.COLLECTING)],
    ids=str,
)
def test_a_killed_collector(ranks: Ranks, steps: int | None, starts: int, phase: LifePhase) -> None:
    attempt = ranks.attempt(**LONG, algo={"learning_starts": starts, "replay_rows": 40_000})

    def kill() -> None:
        os.kill(attempt.collector.pid, signal.SIGKILL)

    if steps is None:
        kill()
    else:
        attempt.when(lambda: attempt.env_steps >= steps, kill)
    report = end_of(attempt, ExitCode.FAILED)
    assert story(report) == (Classification.COLLECTOR_FAILURE, Owner.COLLECTOR, phase)
    assert report.collector is not None
    assert (report.collector.exitcode, report.collector.signal) == (-9, 9)
    assert not report.collector.killed
    assert report.exception is not None
    assert "SIGKILL" in report.exception.message
    assert phase is LifePhase.START_UP or is_filled(report)


def test_a_hung_collector(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch, 0.5)
    attempt = ranks.attempt(**LONG, grace_period_seconds=5)
    attempt.when(
        lambda: attempt.env_steps >= 40, lambda: os.kill(attempt.collector.pid, signal.SIGSTOP)
    )
    report = end_of(attempt, ExitCode.FAILED)
    assert story(report) == (Classification.STALE_TICK, Owner.COLLECTOR, LifePhase.COLLECTING)
    assert is_filled(report)
    assert report.collector is not None
    assert report.collector.killed


def test_a_hung_collector_does_not_use_up_the_grace_of_a_stop(ranks: Ranks) -> None:
    attempt = ranks.attempt(**LONG, grace_period_seconds=5)

    def hang() -> None:
        os.kill(attempt.collector.pid, signal.SIGSTOP)
        attempt.stop.interrupt.set()

    attempt.when(lambda: attempt.env_steps >= 40, hang)
    report = end_of(attempt, ExitCode.FAILED)
    assert report.classification is Classification.STALE_TICK
    assert report.learner_coordination.stop_requested


def external(**overrides: Any) -> dict[str, Any]:
    return {
        **LONG,
        "task": {
            "name": "fake_external",
            "entry_point": "fake_backends:external",
            "overrides": overrides,
        },
    }


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"worker_dies_at": 1}, "ended with status 3"),
        ({"worker_dies_at": 30}, "ended with status 3"),
        ({"worker_hangs_at": 30, "answer_timeout_s": 0.5}, "has not answered"),
    ],
    ids=["first step", "dies", "hangs"],
)
def test_a_simulator_that_fails(ranks: Ranks, overrides: dict[str, Any], words: str) -> None:
    report = end_of(ranks.attempt(**external(**overrides)), ExitCode.FAILED)
    assert report.classification is Classification.BACKEND_WORKER_FAILURE
    assert report.owner is Owner.BACKEND_WORKER
    assert report.phase in (LifePhase.WARM_UP, LifePhase.COLLECTING)
    assert report.exception is not None
    assert words in report.exception.message
    assert report.inference_ring is not None
    assert report.replay_ingress is not None
    assert overrides.get("worker_dies_at") == 1 or is_filled(report)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda n: n.name)
def test_a_simulator_that_is_killed_or_stopped(ranks: Ranks, number: signal.Signals) -> None:
    attempt = ranks.attempt(**external(answer_timeout_s=0.5))

    def strike() -> None:
        for worker in psutil.Process(attempt.collector.pid).children():
            worker.send_signal(number)

    attempt.when(lambda: attempt.env_steps >= 40, strike)
    report = end_of(attempt, ExitCode.FAILED)
    assert story(report)[:2] == (Classification.BACKEND_WORKER_FAILURE, Owner.BACKEND_WORKER)
    assert is_filled(report)


class DiskFullError(OSError):
    def __init__(self) -> None:
        super().__init__(errno.ENOSPC, "No space left on device")


def throw(error: BaseException, *, call: int = 1) -> Callable[[], None]:
    calls = count(1)

    def act() -> None:
        if next(calls) == call:
            raise error

    return act


@pytest.mark.parametrize(
    ("at", "error", "phase"),
    [
        ((SacAgent, "random_action"), ValueError("broken"), LifePhase.WARM_UP),
        ((SacAgent, "act"), ValueError("broken"), LifePhase.COLLECTING),
        ((SacAgent, "update"), MemoryError("out of memory"), LifePhase.LEARNING),
        ((SacAgent, "update"), SystemExit(4), LifePhase.LEARNING),
        ((Evaluator, "evaluate"), ValueError("broken"), LifePhase.EVALUATION),
        ((CheckpointStore, "commit"), DiskFullError(), LifePhase.CHECKPOINT),
    ],
    ids=lambda value: value.value if isinstance(value, LifePhase) else None,
)
def test_a_learner_that_fails(
    ranks: Ranks,
    monkeypatch: pytest.MonkeyPatch,
    at: tuple[type, str],
    error: BaseException,
    phase: LifePhase,
) -> None:
    before(monkeypatch, *at, throw(error, call=3 if at[1] == "act" else 1))
    attempt = ranks.attempt(
        **LONG, evaluator={"interval": 40, "episodes": 1}, checkpoint={"interval": 40}
    )
    report = end_of(attempt, ExitCode.FAILED)
    assert story(report) == (Classification.LEARNER_FAILURE, Owner.LEARNER, phase)
    assert report.exception is not None
    assert report.exception.type == type(error).__name__
    assert report.collector is not None
    assert report.collector.exitcode == 0
    assert not attempt.checkpoints.paths()
    assert phase is LifePhase.WARM_UP or is_filled(report)


@pytest.mark.parametrize(
    ("owner", "method", "phase"),
    [
        (SacAgent, "random_action", LifePhase.WARM_UP),
        (SacAgent, "update", LifePhase.LEARNING),
        (Evaluator, "evaluate", LifePhase.EVALUATION),
        (CheckpointStore, "commit", LifePhase.CHECKPOINT),
    ],
    ids=lambda value: value.value if isinstance(value, LifePhase) else None,
)
def test_a_stop_in_every_phase(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, phase: LifePhase
) -> None:
    attempt = ranks.attempt(
        **LONG, evaluator={"interval": 40, "episodes": 1}, checkpoint={"interval": 60}
    )
    before(monkeypatch, owner, method, lambda: attempt.stop._remember(signal.SIGTERM, None))
    report = end_of(attempt, ExitCode.CHECKPOINTED)
    assert story(report) == (Classification.EXTERNAL_CANCELLATION, Owner.EXTERNAL, phase)
    assert report.learner_coordination.stop_signal == "SIGTERM"
    assert report.exception is None
    assert attempt.checkpoints.latest() is not None
    assert phase is LifePhase.WARM_UP or is_filled(report)


def test_a_stop_before_anything_was_made(ranks: Ranks) -> None:
    attempt = ranks.attempt()
    attempt.stop.interrupt.set()
    report = end_of(attempt, ExitCode.CHECKPOINTED)
    assert story(report) == (
        Classification.EXTERNAL_CANCELLATION,
        Owner.EXTERNAL,
        LifePhase.START_UP,
    )
    assert (report.coordination_tick, report.inference_epoch) == (None, None)


def test_a_refused_run_is_the_learners_failure_in_its_start_up(ranks: Ranks) -> None:
    attempt = ranks.attempt(checkpoint={"resume_from": "nowhere"})
    report = end_of(attempt, ExitCode.REFUSED)
    assert story(report) == (Classification.LEARNER_FAILURE, Owner.LEARNER, LifePhase.START_UP)


def test_what_fails_on_the_way_out_is_told_beside_the_cause(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, SacAgent, "update", throw(ValueError("the cause")))
    before(monkeypatch, RankGroup, "close", throw(OSError("in the way")))
    attempt = ranks.attempt(**LONG)
    assert attempt.run() is ExitCode.FAILED
    report = attempt.outcome.shutdown
    assert report is not None
    assert report.exception is not None
    assert report.exception.message == "the cause"
    assert report.cleanup.errors == ("leave process group: OSError: in the way",)
    manifest = attempt.summary.runtime_manifest
    assert manifest is not None
    assert manifest["shutdown"] == report.model_dump(mode="json")
    assert manifest["replay_ingress"]["published_sequence"] > 0
