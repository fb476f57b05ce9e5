"""``drivetrain soak``: what it refuses, how it ends, what it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from click.testing import CliRunner
from soaked import DRIVETRAIN, SCALED, TRAINER

from drivetrain_api.artifacts.soak import SoakArtifact
from drivetrain_trainer.cli.soak import soak


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [DRIVETRAIN, "soak", *SCALED, *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def trainer(folder: Path, *words: str) -> list[str]:
    return ["--", sys.executable, "-S", str(TRAINER), str(folder / "run"), *words]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give -f FILE, or a command behind --"),
        (["--max-growth", "disk=5", "--", "x"], "RESOURCE one of rss, pss, fds"),
        (["--max-growth", "rss=much", "--", "x"], "got 'rss=much'"),
        (["--sample", "0", "--", "x"], "0.0 is not in the range"),
        (["--max-decay", "100", "--", "x"], "100 is not in the range"),
        (["-f", "-"], "must be a file"),
        (["-f", "absent.yaml"], "absent.yaml: No such file or directory"),
    ],
)
def test_what_cannot_begin_is_refused(words: list[str], says: str) -> None:
    done = CliRunner().invoke(soak, words)
    assert done.exit_code == 2
    assert says in done.output


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"algo": {"name": "ppo"}}, "ppo cannot be soaked: it writes no runtime manifest"),
        ({"soak": {"sampleSeconds": 0}}, "soak.sample_seconds: must be an integer from 1"),
    ],
)
def test_a_manifest_that_cannot_be_soaked_is_refused(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    document = {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "x"},
        "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}, **change},
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    done = CliRunner().invoke(soak, ["-f", str(path)])
    assert done.exit_code == 2
    assert says in done.output


@pytest.mark.parametrize("text", ["- a list", "spec: 3", "a: [", "just words"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    done = CliRunner().invoke(soak, ["-f", str(tmp_path / "run.yaml")])
    assert done.exit_code == 2, done.output
    assert "run.yaml" in done.output


def test_commands_that_are_none_or_refuse_are_refused(tmp_path: Path) -> None:
    absent = started(tmp_path, "--", "no-such-command")
    refusing = started(tmp_path, "--", DRIVETRAIN, "run", "-f", "absent.yaml")
    out, err = absent.communicate(timeout=60)
    assert (absent.returncode, out) == (2, "")
    assert "no-such-command: No such file or directory" in err
    out, err = refusing.communicate(timeout=60)
    assert (refusing.returncode, out) == (2, "")
    assert "absent.yaml" in err
    assert list(tmp_path.iterdir()) == []


def test_ppo_is_refused_once_it_shows_itself_and_is_ended(tmp_path: Path) -> None:
    process = started(tmp_path, *trainer(tmp_path, "--algo", "ppo", "--seconds", "300"))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "ppo cannot be soaked" in err
    assert not list(tmp_path.rglob("soak_artifact.json"))
    assert not alive(tmp_path)


def alive(folder: Path) -> list[int]:
    mark = str(folder / "run")
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        words = process.info["cmdline"] or []
        if mark in words and "soak" not in words:
            found.append(process.info["pid"])
    return found


@pytest.mark.parametrize(("deaf", "number"), [(False, signal.SIGINT), (True, signal.SIGTERM)])
def test_a_soak_that_is_ended_ends_every_process_and_says_so(
    tmp_path: Path, deaf: bool, number: signal.Signals
) -> None:
    words = ["--deaf"] if deaf else []
    process = started(tmp_path, *trainer(tmp_path, "--seconds", "300", *words))
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "run_summary.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    (path,) = tmp_path.rglob("soak_artifact.json")
    artifact = SoakArtifact.from_json(path.read_text())
    assert artifact.failure_classification is not None
    assert artifact.failure_classification.value == "external_cancellation"
    assert artifact.failure_reason == f"the soak was ended by {number.name}"
    assert artifact.returncode == (-signal.SIGKILL if deaf else 143)
    assert artifact.shutdown is None
    assert not alive(tmp_path)


def test_artifact_and_log_go_where_they_are_asked_for(tmp_path: Path) -> None:
    words = ("--run-dir", "run", "-o", "kept/verdict.json", "--duration", "77", "--show-output")
    command = f"echo $DRIVETRAIN_SOAK_SECONDS; exec {sys.executable} -S {TRAINER} run --seconds 0.5"
    process = started(tmp_path, *words, "--", "sh", "-c", command)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert out.endswith("kept/verdict.json\n")
    artifact = SoakArtifact.from_json((tmp_path / "kept/verdict.json").read_text())
    assert artifact.monitor.duration_s == 77
    assert artifact.command == ("sh", "-c", command)
    assert artifact.context["working_directory"] == os.path.realpath(tmp_path)
    assert (tmp_path / "kept/soak_console.log").read_text() == "77\n"
    assert "77\n" in err
