from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from drivetrain_operator.local.lock import RunLock

if TYPE_CHECKING:
    from click.testing import Result

Start = Callable[..., Any]
Call = Callable[..., "Result"]
QUICK = ["--algo", "sac", "--task", "half_cheetah", "restart.backoff_seconds=0"]
NAME = "half-cheetah-sac"


def test_a_run_ends_with_its_status(start: Start) -> None:
    command = start("progress=1000+exit=0")
    code, out, err = command.ended()
    assert code == 0
    printed = yaml.safe_load(out)
    assert printed["metadata"]["name"] == NAME
    assert printed["status"]["phase"] == "Complete"
    assert printed["status"]["progress"]["envSteps"] == 1000
    assert "spec" not in printed
    assert "TrainingComplete" in err
    assert command.status()["phase"] == "Complete"


def test_a_failed_run_shows_why(start: Start) -> None:
    code, out, err = start("noise+message=all is lost+exit=3").ended()
    assert code == 1
    assert yaml.safe_load(out)["status"]["phase"] == "Failed"
    assert "pod half-cheetah-sac-a1-0 failed with exit code 3" in err
    assert "to standard error" in err
    assert "NonRetryableExit" in err
    assert "all is lost" in err


def test_a_crash_is_survived(start: Start) -> None:
    command = start("die=SIGSEGV,progress=5+exit=0", *QUICK, "--output", "none")
    assert command.ended()[:2] == (0, "")
    assert command.status()["restarts"] == 1


def test_a_finished_run_is_not_repeated(start: Start) -> None:
    start("exit=0").ended()
    code, out, err = start("exit=3").ended()
    assert code == 0
    assert "is Complete already; --fresh starts over" in err
    assert yaml.safe_load(out)["status"]["phase"] == "Complete"
    fresh = start("exit=3", *QUICK, "--fresh")
    assert fresh.ended()[0] == 1
    assert start("exit=0").ended()[0] == 1


@pytest.mark.parametrize(
    ("number", "by"),
    [
        (signal.SIGINT, "the user at the terminal"),
        (signal.SIGTERM, "SIGTERM to the command"),
        (signal.SIGHUP, "the terminal's end"),
    ],
)
def test_the_first_signal_checkpoints_and_the_same_command_resumes(
    start: Start, number: signal.Signals, by: str
) -> None:
    plan = "progress=500+hang,progress=1000+exit=0"
    command = start(plan)
    command.until_ready()
    command.signal(number)
    code, out, err = command.ended()
    assert code == 130
    assert yaml.safe_load(out)["status"]["phase"] == "Suspended"
    assert err.endswith("suspended at 500 environment steps; the same command resumes\n")
    stored = command.store.get(NAME)
    assert stored.metadata.annotations["drivetrain.dev/suspended-by"] == by
    again = start(plan)
    assert again.ended()[0] == 0
    assert again.status()["attempt"] == 2


def test_the_second_interrupt_kills_at_once(start: Start) -> None:
    command = start("brood+stubborn", *QUICK, "grace_period_seconds=3600")
    command.until_ready()
    command.signal(signal.SIGINT)
    command.until(lambda: command.status()["phase"] == "Suspending")
    command.signal(signal.SIGINT)
    code, _, err = command.ended()
    assert code == 130
    assert "killed: what was not checkpointed is lost" in err
    assert "suspended without a checkpoint" in err
    assert command.status()["phase"] == "Suspended"


def test_kill_9_leaves_no_process_and_the_same_command_goes_on(start: Start) -> None:
    command = start("progress=7+brood+stubborn,exit=0")
    command.until_ready()
    command.process.kill()
    command.process.communicate()
    again = start("progress=7+brood+stubborn,exit=0")
    assert again.ended()[0] == 0
    assert (again.status()["attempt"], again.status()["disruptions"]) == (2, 1)
    assert again.status()["restarts"] == 0


def test_two_commands_never_drive_one_run(start: Start) -> None:
    first = start("hang")
    first.until_ready()
    code, _, err = start("hang").ended()
    assert code == 2
    assert f"run '{NAME}' is driven already by process {first.process.pid} since" in err
    other = start("exit=0", *QUICK, "--name", "other")
    assert other.ended()[0] == 0
    first.signal(signal.SIGINT)
    assert first.ended()[0] == 130


def test_another_spec_under_the_same_name_is_refused(start: Start) -> None:
    command = start("hang", *QUICK, "--name", NAME)
    command.until_ready()
    command.signal(signal.SIGINT)
    command.ended()
    code, _, err = start("exit=0", *QUICK, "algo.num_envs=8").ended()
    assert code == 2
    assert "algo.num_envs: algo is immutable" in err
    assert "--fresh starts over, --name NAME makes another run" in err
    # A setting that may change, changes.
    assert start("exit=0", *QUICK, "grace_period_seconds=7").ended()[0] == 0


def test_a_run_goes_on_where_its_files_are(start: Start, folder: Path) -> None:
    command = start("hang")
    command.until_ready()
    command.signal(signal.SIGINT)
    command.ended()
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    again = start("facts+hang", *QUICK, "--state-dir", str(folder / ".drivetrain"))
    again.until_ready()
    stored = again.store.get(NAME)
    assert stored.metadata.annotations["drivetrain.dev/local-storage"] == str(folder)
    again.signal(signal.SIGINT)
    again.ended()


def test_pod_0_draws_on_a_terminal(start: Start, folder: Path) -> None:
    ours, theirs = pty.openpty()
    command = start("noise+exit=0", *QUICK, "--output", "none")
    assert "to standard output" in command.ended()[2]  # no terminal: kept off standard output
    words = [sys.executable, "-m", "drivetrain_operator.cli.main", "run", *QUICK, "--fresh"]
    stand_in = command.process.args and Path(__file__).parent.parent / "local/stand_in.py"
    environment = {
        **os.environ,
        "DRIVETRAIN_LAUNCHER": f"{sys.executable} -S {stand_in} noise+exit=0",
    }
    with subprocess.Popen(
        words, env=environment, stdout=theirs, stderr=subprocess.PIPE, cwd=folder
    ) as process:
        os.close(theirs)
        _, err = process.communicate(timeout=20)
    drawn = os.read(ours, 65536).decode()
    os.close(ours)
    assert drawn.startswith("to standard output\r\n\x1b[?25h")
    assert "phase: Complete" in drawn
    assert b"to standard output" not in err


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ["algo.num_envs=0"],
            ["command line: algo.num_envs: must be an integer from 1 to 1048576; got 0"],
        ),
        (["algo.num_env=1"], ["command line: algo.num_env: unknown key; did you mean"]),
        (
            ["training.device=cuda"],
            ["command line: training.device: cuda is not there, 0 can be used: /proc/driver"],
        ),
        (
            ["accelerator.gpus_per_node=2"],
            ["accelerator.gpus_per_node: 1 pod(s) with 2 want 2 device(s) and 0 can be used here"],
        ),
        (
            ["algo.replay_rows=999000000", "checkpoint.resume_from=nowhere"],
            [
                "command line: algo.replay_rows: 999000000 needs too much memory: inference",
                "command line: checkpoint.resume_from: no folder",
            ],
        ),
        (
            ["training.log_root=/proc/none"],
            ["command line: training.log_root: /proc/none cannot be written to: /proc: "],
        ),
        (["training.log_dir=file/x"], ["training.log_dir: "]),
        (["suspend=true"], ["command line: suspend: is true: the run would never start"]),
        (["task.overrides.colour=red"], ["task.overrides.colour: "]),
        (
            ['pod_template={"spec": {"hostname": "x"}}'],
            ["pod_template.spec.hostname: is the operator's: the Job names its pods"],
        ),
        (["task.entry_point=nothing:here"], ["cannot load task 'nothing:here'"]),
        (["metadata.name=Bad_Name"], ["metadata.name: "]),
    ],
)
def test_refusals_name_path_and_value_and_start_nothing(
    call: Call, folder: Path, words: list[str], lines: list[str]
) -> None:
    (folder / "file").touch()
    result = call("run", *QUICK, *words)
    assert result.exit_code == 2
    for line in lines:
        assert line in result.stderr
    assert result.stdout == ""
    assert [p.name for p in folder.iterdir()] == ["file"]


def test_a_manifests_refusal_names_its_line(call: Call, manifest: Callable[..., Path]) -> None:
    path = manifest(algo={"name": "sac", "numEnvs": True}, training={"iterationz": 3})
    result = call("run", "-f", str(path), "algo.gamma=7")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"error: {path}:8: algo.num_envs: must be an integer from 1 to 1048576; got true",
        "error: command line: algo.gamma: must be a finite number from 0 to 1; got 7",
        f"error: {path}:14: training.iterationz: unknown key; did you mean training.iterations?",
    ]


def test_a_store_that_vanishes_ends_the_run(start: Start) -> None:
    command = start("brood+hang")
    command.until_ready()
    command.store.remove(NAME)
    command.signal(signal.SIGINT)
    code, _, err = command.ended()
    assert code == 1
    assert f"Error: run '{NAME}' was removed while it was driven" in err
    assert "Traceback" not in err


def test_a_launcher_that_is_missing_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIVETRAIN_LAUNCHER", "no-such-launcher --flag")
    result = call("run", *QUICK)
    assert result.exit_code == 2
    assert "'no-such-launcher' is not to be found in PATH=" in result.stderr
    assert "pip install 'drivetrain[trainer]'" in result.stderr


def test_a_state_directory_that_cannot_be_written_is_refused(call: Call) -> None:
    result = call("run", *QUICK, "--state-dir", "/proc/none")
    assert result.exit_code == 2
    assert "--state-dir: /proc/none cannot be written to" in result.stderr


def test_a_stored_run_that_cannot_be_read_is_refused(start: Start, call: Call) -> None:
    command = start("exit=0")
    command.ended()
    path = command.store.folder(NAME) / "trainingrun.json"
    path.write_text("{")
    result = call("run", *QUICK)
    assert result.exit_code == 2
    assert f"{path}: not JSON" in result.stderr
    assert start("exit=0", *QUICK, "--fresh").ended()[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give -f FILE, or both --algo and --task"),
        (["--algo", "sac"], "give -f FILE, or both --algo and --task"),
        (["-f", "x.yaml", "--task", "ant"], "-f excludes --task: put key=value behind it"),
        (["-f", "none.yaml"], "none.yaml: No such file or directory"),
    ],
)
def test_a_request_needs_one_source(call: Call, words: list[str], message: str) -> None:
    result = call("run", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_manifest_may_come_by_standard_input(call: Call, manifest: Callable[..., Path]) -> None:
    result = call("run", "-f", "-", text=manifest(seed=-1).read_text())
    assert result.exit_code == 2
    assert "<stdin>:12: seed: must be an integer from 0 to 4294967295; got -1" in result.stderr


def test_what_one_machine_does_not_heed_is_said(start: Start) -> None:
    secret = "training.wandb_api_key_secret_ref.name=wandb"
    code, _, err = start("exit=0", *QUICK, "image=trainer:1", "queue_name=gpu", secret).ended()
    assert code == 0
    assert (
        "on one machine without effect: image, queue_name, training.wandb_api_key_secret_ref" in err
    )


def test_a_task_in_the_current_directory_is_found(start: Start, folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from drivetrain_trainer.tasks.catalog import half_cheetah\n"
        "import dataclasses\n"
        "task = dataclasses.replace(half_cheetah, name='mine')\n"
    )
    words = ["--algo", "sac", "--task", "mine", "--name", NAME, "task.entry_point=mine:task"]
    command = start("facts+hang", *words)
    command.until_ready()
    (facts,) = command.store.folder(NAME).glob("pods/*/volumes/scratch/facts.json")
    paths = yaml.safe_load(facts.read_text())["environment"]["PYTHONPATH"].split(os.pathsep)
    assert paths[0] == str(folder)
    command.signal(signal.SIGINT)
    assert command.ended()[0] == 130


def test_a_lock_held_by_another_program_is_named(call: Call, folder: Path) -> None:
    with RunLock(folder / ".drivetrain/locks" / f"{NAME}.lock"):
        result = call("run", *QUICK)
    assert result.exit_code == 2
    assert f"is driven already by process {os.getpid()}" in result.stderr
    assert "--name NAME makes another run" in result.stderr
