"""``drivetrain run`` as a person starts it: real processes from the command line to physics."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import TIMEOUT, CommandLine, command_line, find, gone, tree, until

from drivetrain_api.status import ConditionType, Phase

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


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path, MANIFEST) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize(
    "victim",
    ["runtime.child_main", "drivetrain_trainer.train", "launcher.agent", "drivetrain-launcher"],
    ids=["collector", "learner", "torchrun", "launcher"],
)
def test_a_killed_process_restarts_from_the_last_checkpoint(
    shell: CommandLine, victim: str
) -> None:
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
def test_the_command_killed_leaves_nothing_and_goes_on_when_typed_again(shell: CommandLine) -> None:
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
def test_ctrl_c_suspends_and_the_same_command_resumes_at_the_same_step(shell: CommandLine) -> None:
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
def test_two_ranks_train_in_step(shell: CommandLine) -> None:
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
def test_a_refusal_names_path_value_and_range_and_starts_nothing(shell: CommandLine) -> None:
    command = shell.run("algo.batch_size=true", "task.name=hoper")
    assert command.wait(TIMEOUT) == 2
    said = (shell.folder / "stderr").read_text()
    assert "algo.batch_size" in said
    assert "true" in said
    assert "16777216" in said.replace(",", "").replace("_", "")
    assert not (shell.folder / ".drivetrain").exists()
    assert not (shell.folder / "logs").exists()
