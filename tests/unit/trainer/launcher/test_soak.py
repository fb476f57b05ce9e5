"""`spec.soak`: the launcher's own monitor, with real torchrun and stand-in ranks.

Each start costs a Torch import, so a test here proves several things.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from soak_trainer import Summary, parsed, shutdown

from drivetrain_api.artifacts.soak import SoakArtifact, SoakStatus
from drivetrain_api.attempt import AttemptSpec
from drivetrain_api.status import SoakVerdict
from drivetrain_trainer.evidence.run_directory import RunDirectory

SOAK = {"sampleSeconds": 1, "staleSeconds": 3, "graceSeconds": 1, "durationSeconds": 3600}


class Told:
    """What the ranks would write of themselves."""

    def __init__(self, pod: Any) -> None:
        pod.spec = {"soak": SOAK}
        pod.storage.mkdir()
        attempt = AttemptSpec.model_validate(pod.document())
        self.folder: Path = RunDirectory.claim(attempt, pod.storage).path
        self.summary = Summary(self.folder, parsed([str(self.folder)]))
        self.summary.status = "interrupted"  # as an earlier attempt left it
        self.summary.write()

    def tick(self) -> None:
        self.summary.status = "running"
        self.summary.ticks += 1
        self.summary.write()

    def end(self) -> None:
        self.summary.status = "completed"
        self.summary.shutdown = shutdown("normal_completion")
        self.summary.write()

    @property
    def artifact(self) -> SoakArtifact:
        return SoakArtifact.from_json((self.folder / "soak.json").read_text())


@pytest.fixture
def told(pod: Any) -> Told:
    return Told(pod)


def test_a_good_attempt_passes_and_its_verdict_is_reported(pod: Any, told: Told) -> None:
    pod.environ = {"DRIVETRAIN_SOAK_SECONDS": "77"}  # of `drivetrain soak`: it holds
    pod.start(["await=go", "outcome=0"])
    pod.until("up0")
    environ = Path(f"/proc/{pod.pid_of(0)}/environ").read_bytes().split(b"\0")
    assert b"DRIVETRAIN_SOAK_SECONDS=77" in environ
    told.tick()
    told.end()
    (pod.scratch / "go").touch()
    assert pod.wait() == 0, pod.stderr
    for digest in (pod.sink, pod.termination):
        assert (digest.soak.verdict, digest.soak.attempt) == (SoakVerdict.PASSED, 1)
        assert digest.soak.peak_rss_bytes > 10 << 20
    assert "soak" in [artifact.name for artifact in pod.sink.artifacts]
    artifact = told.artifact
    assert artifact.monitor.duration_s == 77
    assert artifact.status is SoakStatus.PASSED
    assert artifact.context["run"] == "run"
    assert artifact.shutdown == told.summary.shutdown
    assert max(sample.peak.processes for sample in artifact.samples) >= 1  # the first may be early
    assert pod.processes() == []


def test_what_outlives_the_ranks_is_told_of_and_ended(pod: Any, told: Told) -> None:
    pod.start(["child", "await=go", "outcome=0"])
    pod.until("up0")
    environ = Path(f"/proc/{pod.pid_of(0)}/environ").read_bytes().split(b"\0")
    assert b"DRIVETRAIN_SOAK_SECONDS=3600" in environ
    told.end()
    (pod.scratch / "go").touch()
    assert pod.wait() == 0, pod.stderr
    soak = pod.sink.soak
    assert (soak.verdict, soak.failure_classification) == (SoakVerdict.FAILED, "residual_process")
    assert "outlived the run" in soak.failure_reason
    assert soak.residual_processes == len(told.artifact.post_shutdown.residual_processes) > 0
    assert pod.processes() == []


def test_an_attempt_that_stalls_is_ended_and_fails(pod: Any, told: Told) -> None:
    pod.start(["await=tick", "wait", "outcome=75", "exit=75"])
    pod.until("up0")
    for _ in range(40):  # until the monitor has seen two of them
        told.tick()
        pod.process.poll()
        signal.sigtimedwait([], 0.1)
    (pod.scratch / "tick").touch()
    assert pod.wait() == 1, pod.stderr
    digest = pod.sink
    assert digest.message.startswith("soak: no tick for")
    assert digest.soak.failure_classification == "timeout/stale_tick"
    assert told.artifact.monitor.findings[0].rule == "stall"
    assert told.artifact.shutdown is None


def test_an_attempt_that_is_stopped_from_outside_is_cancelled(pod: Any, told: Told) -> None:
    pod.start(["wait", "outcome=75", "exit=75"])
    pod.until("up0")
    told.tick()
    pod.send(signal.SIGTERM)
    assert pod.wait() == 75, pod.stderr
    soak = pod.sink.soak
    assert soak.failure_classification == "external_cancellation"
    assert soak.failure_reason == "stopped by SIGTERM"
