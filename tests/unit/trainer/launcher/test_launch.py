"""The whole chain with real torchrun and stand-in ranks: codes, signals, kills, reports.

Each start costs a Torch import, so a test here proves several things; the table of verdicts
is in test_outcome.py.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_summary import RunSeeds, RunSummary
from drivetrain_api.attempt import AttemptSpec
from drivetrain_trainer.evidence.checkpoint import CheckpointStore
from drivetrain_trainer.evidence.checkpoint_manifest import CheckpointSubject
from drivetrain_trainer.evidence.run_directory import RunDirectory
from drivetrain_trainer.launcher import launch
from drivetrain_trainer.launcher.signals import StopSignals

STAND_IN = Path(__file__).parent / "stand_in"
STOP = ["wait", "outcome=75", "exit=75"]


def nothing_is_left(pod: Any) -> None:
    assert pod.processes() == []
    kept = {"run.json", "scratch", "storage", "sink", "termination"}
    assert {entry.name for entry in pod.folder.iterdir()} <= kept


def claim(pod: Any) -> RunDirectory:
    attempt = AttemptSpec.model_validate(pod.document())
    directory = RunDirectory.claim(attempt, pod.storage)
    summary = RunSummary(
        status=RunStatus.RUNNING,
        algo="sac",
        task="stand_in",
        sim_backend="mujoco",
        log_dir=str(directory.path),
        seeds=RunSeeds(run=0, algo=0, env=0),
        start_time_utc=attempt.created,
        total_env_steps=640,
        final_mean_reward=1.5,
    )
    directory.run_summary.write_text(summary.to_json())
    directory.run_config.write_text("{}")
    subject = CheckpointSubject(summary.algo, summary.task, summary.sim_backend, {})
    store = CheckpointStore(directory.checkpoints, subject=subject, keep=3, fence=directory.fence)
    for step in (320, 640):
        draft = store.draft(step)
        draft.write("learner", {})
        store.commit(draft, parts=["learner"], iteration=1, best=step == 320)
    return directory


def test_a_run_to_its_end_with_progress_and_artifacts(pod: Any) -> None:
    directory = claim(pod)
    pod.start(["progress", "await=go", "outcome=0"])
    pod.until("progress.json")
    while pod.sink is None:
        time.sleep(0.02)
    live = pod.sink
    assert (live.attempt, live.exit_code, live.progress.env_steps) == (1, None, 640)
    (pod.scratch / "go").touch()
    assert pod.wait() == 0
    assert pod.stdout == "rank 0 on stdout\n"
    for line in pod.stderr.splitlines():
        assert json.loads(line)["run"] == "run"
    for digest in (pod.sink, pod.termination):
        assert (digest.attempt, digest.exit_code) == (1, 0)
        assert digest.message == "training is complete"
        assert digest.progress.env_steps == 640
        assert digest.run_summary.final_mean_reward == "1.5"
        assert digest.run_summary.run_directory == str(directory.path.relative_to(pod.storage))
        artifacts = {artifact.name: artifact for artifact in digest.artifacts}
        assert set(artifacts) == {
            "best_checkpoint",
            "last_checkpoint",
            "run_summary",
            "run_config",
        }
        assert artifacts["best_checkpoint"].uri.endswith("checkpoints/step_000000000320")
        assert artifacts["last_checkpoint"].uri.endswith("checkpoints/step_000000000640")
        for artifact in digest.artifacts:
            assert (pod.storage / artifact.uri).exists()
            assert artifact.bytes > 0
            assert artifact.sha256 is not None
    # Rank 0 was a stand-in and left its summary running: the launcher gave it its end.
    summary = RunSummary.from_json(directory.run_summary.read_text())
    assert summary.status is RunStatus.COMPLETED
    nothing_is_left(pod)


@pytest.mark.slow
def test_sigterm_leaves_ranks_the_time_that_they_need(pod: Any) -> None:
    pod.ranks = 2
    pod.start(
        ["wait", "sleep=4", "outcome=75", "exit=75"],
        ["wait", "outcome=75", "await=outcome-rank0.json", "exit=75"],
    )
    pod.until("up0")
    pod.until("up1")
    began = time.monotonic()
    pod.send(signal.SIGTERM)
    assert pod.wait() == 75
    assert time.monotonic() - began > 4
    message = "stopped by SIGTERM after a checkpoint at 640 environment steps"
    assert pod.termination.message == message
    nothing_is_left(pod)


@pytest.mark.slow
def test_a_rank_that_ignores_the_signal_is_killed_before_the_grace_period_ends(
    pod: Any,
) -> None:
    pod.spec = {"gracePeriodSeconds": 5}
    pod.start(["ignore", "child", "sleep=1000"])
    pod.until("up0")
    began = time.monotonic()
    pod.send(signal.SIGINT)
    assert pod.wait() == 1
    assert time.monotonic() - began < 5
    assert pod.termination.message == "rank 0 did not stop within 4 s and was killed"
    nothing_is_left(pod)


def test_a_second_ctrl_c_does_not_wait(pod: Any) -> None:
    pod.start(["ignore", "sleep=1000"])
    pod.until("up0")
    pod.send(signal.SIGINT)
    while '"stopping"' not in pod.process.stderr.readline():
        assert pod.process.poll() is None
    began = time.monotonic()
    pod.send(signal.SIGINT)
    assert pod.wait() == 1
    assert time.monotonic() - began < 20  # of a grace period of 30
    nothing_is_left(pod)


@pytest.mark.parametrize("moment", ["torchrun", "scratch"])
def test_sigterm_at_start_up_loses_nothing(pod: Any, moment: str) -> None:
    pod.start(STOP)
    if moment == "scratch":  # the launcher is in its checks, or just past them
        while not pod.scratch.exists():
            time.sleep(0.001)
    else:  # torchrun imports Torch
        while len(pod.processes()) < 2:
            time.sleep(0.005)
    pod.send(signal.SIGTERM)
    assert pod.wait() == 75
    assert pod.termination.message == "stopped by SIGTERM before training began"
    nothing_is_left(pod)


def test_a_killed_rank_is_named_and_its_peer_ended(pod: Any) -> None:
    pod.ranks = 2
    pod.start([*STOP], ["sleep=1000"])
    pod.until("up0")
    pod.until("up1")
    os.kill(pod.pid_of(1), signal.SIGKILL)
    assert pod.wait() == 1
    assert pod.termination.message == "rank 1 was killed by SIGKILL"
    nothing_is_left(pod)


def test_a_refusal_of_one_rank_decides(pod: Any) -> None:
    pod.ranks = 2
    assert pod.run(["await=up1", "outcome=2", "exit=2"], STOP) == 2
    assert pod.termination.message == "rank 0: as told: 2"
    nothing_is_left(pod)


def test_killing_torchrun_ends_its_ranks_and_is_named(pod: Any) -> None:
    directory = claim(pod)
    pod.start(["sleep=1000"])
    pod.until("started-rank0")
    torchrun = int(Path(f"/proc/{pod.pid_of(0)}/stat").read_text().split()[3])
    os.kill(torchrun, signal.SIGKILL)
    assert pod.wait() == 1
    assert pod.termination.message == "torchrun was killed by SIGKILL"
    summary = RunSummary.from_json(directory.run_summary.read_text())
    assert (summary.status, summary.error_type) == (RunStatus.FAILED, "Killed")
    assert summary.error == "torchrun was killed by SIGKILL"
    nothing_is_left(pod)


def test_killing_the_launcher_leaves_no_orphan(pod: Any) -> None:
    pod.ranks = 2
    pod.start(["ignore", "sleep=1000"], ["ignore", "sleep=1000"])
    pod.until("started-rank0")
    pod.until("started-rank1")
    assert len(pod.processes()) == 4
    pod.send(signal.SIGKILL)
    assert pod.wait() == -signal.SIGKILL
    ends = time.monotonic() + 5
    while pod.processes() and time.monotonic() < ends:
        time.sleep(0.02)
    assert pod.processes() == []


def test_what_a_rank_leaves_behind_is_cleared_away_and_its_word_counts(pod: Any) -> None:
    # The outcome is the rank's word: its process may stumble on the way out.
    assert pod.run(["child", "outcome=0", "exit=1"]) == 0
    nothing_is_left(pod)


def test_torchruns_own_failure_is_told(pod: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        pod.environ = {"PET_MASTER_PORT": str(taken.getsockname()[1])}
        assert pod.run(STOP) == 1
    assert pod.termination.message.startswith("torchrun failed: ")
    assert "EADDRINUSE" in pod.termination.message
    nothing_is_left(pod)


def test_an_unwritable_termination_log_and_sink_cost_nothing_but_words(pod: Any) -> None:
    pod.environ = {
        "DRIVETRAIN_TERMINATION_LOG": "/proc/none",
        "DRIVETRAIN_PROGRESS_SINK": "file:/proc/none",
    }
    assert pod.run(["progress", "outcome=3", "exit=3"]) == 3
    assert "termination message cannot be written" in pod.stderr
    assert "progress cannot be published" in pod.stderr


def test_a_rank_that_reports_badly_has_failed(pod: Any) -> None:
    assert pod.run(["huge", "exit=0"]) == 1
    assert "left an outcome that is not one" in pod.termination.message
    assert "larger than 131072 bytes" in pod.termination.message
    nothing_is_left(pod)


def test_a_refused_run_starts_nothing(pod: Any) -> None:
    pod.spec = {"checkpoint": {"resumeFrom": "nowhere"}, "accelerator": {"gpusPerNode": 8}}
    assert pod.run(STOP) == 2
    message = pod.termination.message
    assert f"checkpoint.resume_from: {pod.storage}/nowhere: is not there" in message
    assert "accelerator.gpus_per_node: asks for 8, this pod has" in message
    assert pod.sink == pod.termination
    assert "torchrun started" not in pod.stderr
    assert not (pod.scratch / "up0").exists()
    nothing_is_left(pod)


def test_a_fault_of_the_launcher_itself_is_reported(
    pod: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[float] = []
    monkeypatch.setattr(launch, "configure_logging", lambda **_: None)
    monkeypatch.setattr(launch, "kill_descendants", ended.append)
    monkeypatch.setattr(launch, "parse_sink", lambda *_: {}["sink"])
    signals = StopSignals()
    try:
        with capture_logs() as logs:
            assert launch.launch(pod.environment(), signals) == 1
    finally:
        signals._wake.close()
        signals._woken.close()
    assert ended
    assert pod.termination.message == "launcher: 'sink'"
    assert [entry["event"] for entry in logs] == ["the launcher failed", "attempt ended"]


def test_without_a_run_json_the_variable_is_named(pod: Any) -> None:
    pod.environ = {"DRIVETRAIN_SPEC_FILE": "/nowhere/run.json"}
    assert pod.run(STOP) == 2
    assert pod.termination.attempt == 0
    assert pod.termination.message == "DRIVETRAIN_SPEC_FILE: /nowhere/run.json is not there"


@pytest.mark.slow
def test_two_pods_meet_and_stop_together(make_pod: Any, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pods = []
    for node in range(2):
        folder = tmp_path / f"pod{node}"
        folder.mkdir()
        pod = make_pod(folder)
        pod.spec = {"topology": {"nodes": 2, "ranksPerNode": 1}}
        pod.environ = {
            "PET_NNODES": "2",
            "PET_NPROC_PER_NODE": "1",
            "PET_NODE_RANK": str(node),
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": str(port),
        }
        pods.append(pod)
    first, second = pods
    second.start(STOP, STOP)
    assert "waiting for the first pod" in second.process.stderr.readline()
    first.start(STOP, STOP)
    first.until("up0")
    second.until("up1")
    for pod in pods:
        pod.send(signal.SIGTERM)
    assert [pod.wait() for pod in pods] == [75, 75]
    assert first.sink == first.termination
    assert second.sink is None  # one pod speaks for the run
    for pod in pods:
        nothing_is_left(pod)


def test_a_pod_that_waits_for_the_first_can_be_stopped(pod: Any) -> None:
    pod.spec = {"topology": {"nodes": 2, "ranksPerNode": 1}}
    pod.environ = {
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": "1",
    }
    pod.start(STOP, STOP)
    line = pod.process.stderr.readline()
    assert "waiting for the first pod" in line
    pod.send(signal.SIGTERM)
    assert pod.wait() == 75
    nothing_is_left(pod)


@pytest.fixture
def silent_signals() -> Iterator[StopSignals]:
    signals = StopSignals()
    yield signals
    signals._wake.close()
    signals._woken.close()


def test_a_report_that_cannot_be_whole_is_still_made(
    pod: Any, monkeypatch: pytest.MonkeyPatch, silent_signals: StopSignals
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(launch, "configure_logging", lambda **_: None)
    monkeypatch.setattr(launch, "find_run_directory", fail)
    monkeypatch.syspath_prepend(STAND_IN)
    pod.spec = {"accelerator": {"gpusPerNode": 8}}
    (pod.folder / "run.json").write_text(json.dumps(pod.document()))
    pod.storage.mkdir()
    with capture_logs() as logs:
        assert launch.launch(pod.environment(), silent_signals) == 2
    assert "accelerator.gpus_per_node: asks for 8" in pod.termination.message
    assert pod.sink == pod.termination
    assert "the report lacks what lies in the run directory" in [e["event"] for e in logs]


@pytest.mark.parametrize(
    ("asked", "grace", "seconds"),
    [(None, 30, 5.0), (0.0, 30, 5.0), (27.0, 30, 2.5), (29.4, 30, 0.25), (99.0, 30, 0.25)],
)
def test_the_last_publish_fits_in_the_grace_period(
    monkeypatch: pytest.MonkeyPatch,
    silent_signals: StopSignals,
    asked: float | None,
    grace: float,
    seconds: float,
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    silent_signals.requested_at = None if asked is None else 1000.0 - asked
    made = launch.Launch({}, silent_signals, "none", grace_seconds=grace)
    assert made._time_to_tell() == pytest.approx(seconds)
