"""``drivetrain run`` as a person starts it: real processes from the command line to physics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from drivetrain_api.status import ConditionType, Phase, TrainingRunStatus

TIMEOUT = 120.0
SHM = Path("/dev/shm")
DRIVETRAIN = str(Path(sys.executable).with_name("drivetrain"))

MANIFEST = """
apiVersion: drivetrain.dev/v1alpha1
kind: TrainingRun
metadata:
  name: tiny
spec:
  algo:
    name: sac
    numEnvs: 2
    batchSize: 16
    updatesPerStep: 2
    learningStarts: 8
    actorHidden: [16]
    criticHidden: [16]
    replayRows: 1000
  task:
    name: inverted_pendulum
  training:
    totalEnvSteps: 2000
  evaluator:
    interval: 1000000
    target: 1.0e6
    episodes: 1
  checkpoint:
    interval: 200
  restart:
    backoffSeconds: 0
"""


@dataclass
class Shell:
    """A working directory with a manifest, and the commands typed in it."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, *overrides: str) -> subprocess.Popen[str]:
        command = [DRIVETRAIN, "run", "-f", "run.yaml"]
        with (self.folder / "stdout").open("a") as out, (self.folder / "stderr").open("a") as err:
            process = subprocess.Popen(
                [*command, *overrides],
                cwd=self.folder,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def status(self) -> TrainingRunStatus:
        command = [DRIVETRAIN, "status", "tiny", "-o", "yaml"]
        printed = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=True
        ).stdout
        return TrainingRunStatus.model_validate(yaml.safe_load(printed)["status"])

    def progress(self) -> int:
        """Environment steps in the newest run summary; 0 before there is one."""
        found = sorted(self.folder.glob("logs/sac/inverted_pendulum/*/run_summary.json"))
        if not found:
            return 0
        document: dict[str, Any] = yaml.safe_load(found[-1].read_text())
        return int(document["total_env_steps"])

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("logs/sac/*/*/checkpoints/step_*"))


def until(
    condition: Callable[[], bool], what: str, process: subprocess.Popen[str] | None = None
) -> None:
    """Wait for a condition; a command that ends meanwhile fails the test at once."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert process is None or process.poll() is None, f"the command ended before {what}"
        assert time.monotonic() < deadline, f"waited {TIMEOUT} s for {what}"
        time.sleep(0.02)


def tree(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The command's descendants, whichever session they are in."""
    return psutil.Process(process.pid).children(recursive=True)


def find(process: subprocess.Popen[str], *, mark: str) -> psutil.Process:
    """The descendant whose command line has `mark`."""
    for child in tree(process):
        try:
            if mark in " ".join(child.cmdline()):
                return child
        except psutil.Error:
            continue
    raise AssertionError(f"no process of this run has {mark!r}")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "run.yaml").write_text(MANIFEST)
    before = set(SHM.iterdir())
    made = Shell(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            for child in tree(process):
                child.kill()
            process.kill()
        process.wait()
    assert set(SHM.iterdir()) <= before, "something is left in /dev/shm"


def gone(processes: list[psutil.Process]) -> bool:
    """Whether none of them runs any more (zombies that nobody reaped do not count)."""
    return all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "victim",
    ["runtime.child_main", "drivetrain_trainer.train", "launcher.agent", "drivetrain-launcher"],
    ids=["collector", "learner", "torchrun", "launcher"],
)
def test_a_killed_process_restarts_from_the_last_checkpoint(shell: Shell, victim: str) -> None:
    command = shell.run()
    until(lambda: len(shell.checkpoints()) > 0, "a checkpoint", command)
    processes = tree(command)
    find(command, mark=victim).kill()
    until(lambda: gone(processes), "the first attempt to be gone")
    assert command.wait(TIMEOUT) == 0
    status = shell.status()
    assert status.phase is Phase.COMPLETE
    assert (status.attempt, status.restarts) == (2, 1)
    assert status.progress is not None
    assert status.progress.env_steps == 2000
    assert len(list(shell.folder.glob("logs/sac/inverted_pendulum/*"))) == 1
    reason = "137" if victim == "drivetrain-launcher" else "SIGKILL"
    assert reason in status.history[0].message, "the reason names what happened"


@pytest.mark.slow
def test_the_command_killed_leaves_nothing_and_goes_on_when_typed_again(shell: Shell) -> None:
    command = shell.run()
    until(lambda: len(shell.checkpoints()) > 0, "a checkpoint", command)
    processes = tree(command)
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    again = shell.run()
    assert again.wait(TIMEOUT) == 0
    assert gone(processes)
    status = shell.status()
    assert status.phase is Phase.COMPLETE
    assert status.progress is not None
    assert status.progress.env_steps == 2000
    assert len(list(shell.folder.glob("logs/sac/inverted_pendulum/*"))) == 1


@pytest.mark.slow
def test_ctrl_c_suspends_and_the_same_command_resumes_at_the_same_step(shell: Shell) -> None:
    command = shell.run("training.total_env_steps=1000000")
    until(lambda: shell.progress() > 100, "training", command)
    command.send_signal(signal.SIGINT)
    assert command.wait(TIMEOUT) == 130
    suspended = shell.status()
    assert suspended.phase is Phase.SUSPENDED
    assert suspended.progress is not None
    stopped_at = suspended.progress.env_steps
    assert suspended.progress.checkpoint_env_steps == stopped_at == shell.progress()
    assert shell.checkpoints()[-1] == f"step_{stopped_at:012d}"

    again = shell.run("training.total_env_steps=1000000")
    until(lambda: shell.progress() > stopped_at, "more training", again)
    again.send_signal(signal.SIGINT)
    assert again.wait(TIMEOUT) == 130
    status = shell.status()
    assert (status.attempt, status.restarts) == (2, 0)
    assert status.progress is not None
    assert status.progress.env_steps > stopped_at


@pytest.mark.slow
def test_two_ranks_train_in_step(shell: Shell) -> None:
    command = shell.run("topology.ranks_per_node=2", "training.total_env_steps=800")
    assert command.wait(TIMEOUT) == 0
    status = shell.status()
    assert status.is_true(ConditionType.COMPLETE)
    assert status.progress is not None
    assert status.progress.env_steps == 800
    logs = "".join(p.read_text() for p in shell.folder.glob(".drivetrain/**/*.log"))
    hashes = [
        line.partition('"parameters": "')[2].partition('"')[0]
        for line in logs.splitlines()
        if '"parameters"' in line
    ]
    assert len(hashes) == 2
    assert len(set(hashes)) == 1, "parameters are the same on both ranks"


@pytest.mark.slow
def test_a_refusal_names_path_value_and_range_and_starts_nothing(shell: Shell) -> None:
    command = shell.run("algo.batch_size=true", "task.name=hoper")
    assert command.wait(TIMEOUT) == 2
    said = (shell.folder / "stderr").read_text()
    assert "algo.batch_size" in said
    assert "true" in said
    assert "16777216" in said.replace(",", "").replace("_", "")
    assert not (shell.folder / ".drivetrain").exists()
    assert not (shell.folder / "logs").exists()
