"""Real training under the soak monitor, as a person starts it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from drivetrain_api.artifacts.soak import SoakArtifact, SoakStatus

DRIVETRAIN = str(Path(sys.executable).with_name("drivetrain"))
TINY = """
apiVersion: drivetrain.dev/v1alpha1
kind: TrainingRun
metadata:
  name: tiny
spec:
  algo: {name: sac, numEnvs: 2, batchSize: 16, updatesPerStep: 1, learningStarts: 8,
         actorHidden: [16], criticHidden: [16], replayRows: 1000}
  task: {name: inverted_pendulum}
  training: {totalEnvSteps: 1000000000, replayIngressSlotRows: 1}
  checkpoint: {interval: 1000000000}
  topology: {ranksPerNode: 2}
  soak: {sampleSeconds: 1, warmUpSeconds: 1, throughputDecayPercent: 99}
"""
MOST_GROWTH = {"rss": 128 << 20, "pss": 128 << 20, "fds": 8, "threads": 4, "shm": 1}
"""Bytes, or a count, that two ranks may grow by in half an hour."""


def soak(folder: Path, *options: str, manifest: str = TINY) -> subprocess.Popen[str]:
    (folder / "run.yaml").write_text(manifest)
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        return subprocess.Popen(
            [DRIVETRAIN, "soak", "-f", "run.yaml", *options],
            cwd=folder,
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,
        )


def words(folder: Path) -> str:
    log = next(iter(folder.rglob("soak_console.log")), None)
    return "\n".join(
        path.read_text() for path in (folder / "stdout", folder / "stderr", log) if path is not None
    )


def artifact(folder: Path, name: str) -> SoakArtifact:
    (found,) = folder.glob(f"logs/sac/*/*/{name}")
    return SoakArtifact.from_json(found.read_text())


def status(folder: Path) -> dict[str, Any]:
    command = [DRIVETRAIN, "status", "-o", "yaml"]
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    found: dict[str, Any] = yaml.safe_load(printed.stdout)["status"]
    return found


@pytest.mark.slow
def test_two_ranks_pass_a_short_soak_and_the_status_says_so(tmp_path: Path) -> None:
    process = soak(tmp_path, "--duration", "5", "--sample", "0.5")
    assert process.wait(timeout=240) == 0, words(tmp_path)
    outer, inner = artifact(tmp_path, "soak_artifact.json"), artifact(tmp_path, "soak.json")
    assert outer.status is inner.status is SoakStatus.PASSED
    assert outer.run_summary is not None
    assert outer.run_summary["status"] == "completed"
    assert outer.shutdown is not None
    assert outer.shutdown["classification"] == "normal_completion"
    assert max(sample.peak.processes for sample in outer.samples) >= 6
    found = status(tmp_path)
    assert found["phase"] == "Complete"
    assert (found["soak"]["verdict"], found["soak"]["attempt"]) == ("Passed", 1)
    described = subprocess.run(
        [DRIVETRAIN, "status", "tiny"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "Verdict:      Passed" in described.stdout


@pytest.mark.slow
def test_ctrl_c_ends_a_soak_at_a_checkpoint_and_is_told(tmp_path: Path) -> None:
    process = soak(tmp_path, "--grace", "60")
    deadline = time.monotonic() + 120
    while not any(
        json.loads(path.read_text())["completed_iterations"] > 10
        for path in tmp_path.rglob("run_summary.json")
    ):
        assert process.poll() is None, words(tmp_path)
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130, words(tmp_path)
    found = artifact(tmp_path, "soak_artifact.json")
    assert found.failure_classification is not None
    assert found.failure_classification.value == "external_cancellation"
    assert found.failure_reason is not None
    assert found.failure_reason.startswith("the soak was ended by SIGINT")
    assert found.post_shutdown.residual_processes == ()
    assert list(tmp_path.glob("logs/sac/*/*/checkpoints/step_*"))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_half_an_hour_of_two_rank_half_cheetah_passes_with_flat_memory(tmp_path: Path) -> None:
    manifest = yaml.safe_load(TINY)
    manifest["spec"] |= {
        "algo": {"name": "sac"},
        "task": {"name": "half_cheetah"},
        "training": {"totalEnvSteps": 10**9},
        "evaluator": {"interval": 20000, "episodes": 2},
        "checkpoint": {"interval": 20000},
        "soak": {"durationSeconds": 1800, "warmUpSeconds": 120},
    }
    process = soak(tmp_path, manifest=yaml.safe_dump(manifest))
    assert process.wait(timeout=3500) == 0, words(tmp_path)
    for name in ("soak_artifact.json", "soak.json"):
        found = artifact(tmp_path, name)
        assert found.status is SoakStatus.PASSED
        assert found.duration_s >= 1800
        for resource, most in MOST_GROWTH.items():
            growth = found.resource_summary.resources[resource].growth
            assert growth is not None, resource
            assert growth < most, (resource, growth)
