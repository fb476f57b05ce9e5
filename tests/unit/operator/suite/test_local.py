"""Suites of this machine as real processes, the launcher apart: order, faults, what is resumed."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from suite_files import TEMPLATE

from drivetrain_api.artifacts.suite_record import SuiteMember, SuiteRecord
from drivetrain_api.timings.store import TimingsDirectory
from drivetrain_operator.cli.main import cli

STAND_IN = Path(__file__).parent / "member_stand_in.py"
ROOT = Path("suites/swing")
FOLDER = ROOT / "sac/inverted_pendulum"
LIMIT = 120.0


class Shell:
    """The suite's command in the current directory, as a person types it."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []

    def begin(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        launcher = shlex.join([sys.executable, str(STAND_IN)])
        command = [sys.executable, "-m", "drivetrain_operator.cli.main", "suite"]
        process = subprocess.Popen(
            [*command, "-f", "suite.yaml", *words],
            env={**os.environ, "DRIVETRAIN_LAUNCHER": launcher, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def call(self, *words: str, code: int = 0, **environment: str) -> str:
        """To its end; gives what it printed."""
        return self.end(self.begin(*words, **environment), code)

    def end(self, process: subprocess.Popen[str], code: int) -> str:
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == code, out + err
        return out + err

    def members(self) -> list[SuiteMember]:
        return list(SuiteRecord.from_json((ROOT / "suite.json").read_bytes()).members)

    def states(self) -> list[str]:
        return [str(member.state) for member in self.members()]

    def starts(self) -> list[str]:
        """Names of the members whose launcher was started, in order."""
        return [line.split(" ")[0] for line in Path("started").read_text().splitlines()]


def until(condition: Callable[[], Any], what: str) -> None:
    ends = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < ends, f"waited {LIMIT} s for {what}"
        time.sleep(0.02)


def kill_tree(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the command and all that it started, together."""
    everything = [
        psutil.Process(process.pid),
        *psutil.Process(process.pid).children(recursive=True),
    ]
    for each in everything:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.suspend()
    for each in everything:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.communicate()


@pytest.fixture
def shell() -> Iterator[Shell]:
    made = Shell()
    yield made
    for process in made.started:
        if process.poll() is None:
            kill_tree(process)


def indices() -> list[int | None]:
    stage = TimingsDirectory(FOLDER).load().timings.root.get("sac_train")
    return [run.run_idx for run in stage.runs] if stage is not None else []


def test_a_member_below_its_threshold_is_complete_and_the_table_says_why(
    write: Callable[..., Path], shell: Shell
) -> None:
    write(seeds=2, template={**TEMPLATE, "evaluator": {"threshold": 100.0}})
    Path("swing-s1.plan").write_text("miss")
    first = shell.call()
    assert shell.states() == ["complete", "complete"]
    why = shell.members()[1].reason or ""
    assert why.startswith("ThresholdMissed: attempt 1 is done")
    assert why.endswith("a mean return of 7.5, below evaluator.threshold 100")
    assert shell.members()[0].reason is None
    for said in (first, shell.call()):
        assert "2 complete (1 below its threshold) of 2 members" in said
        assert "swing-s1   ThresholdMissed: attempt 1 is done" in said
    assert shell.starts() == ["swing-s0", "swing-s1"]


def test_a_null_of_the_template_outweighs_the_preset_of_the_task(
    write: Callable[..., Path], shell: Shell
) -> None:
    write(seeds=1, template={**TEMPLATE, "evaluator": {"target": None}})
    shell.call()
    config = json.loads((ROOT / shell.members()[0].run_directory / "run_config.json").read_text())
    assert config["evaluator"]["target"] is None


def test_members_run_in_order_a_failure_stops_no_other_and_is_told(
    write: Callable[..., Path], shell: Shell
) -> None:
    write(seeds=[4, 5, 6])
    Path("swing-s1.plan").write_text("fail")
    said = shell.call(code=1)
    assert shell.starts() == ["swing-s0", "swing-s1", "swing-s2"]
    assert shell.states() == ["complete", "failed", "complete"]
    assert "a wheel fell off" in (shell.members()[1].reason or "")
    assert "2 complete, 1 failed of 3 members" in said
    assert "a wheel fell off" in said
    assert "drivetrain compare suites/swing" in said
    assert indices() == [0, 2]

    (ROOT / "suite.json").unlink()
    again = shell.call(code=1)
    assert "is over already; --retry-failed" in again
    assert len(shell.starts()) == 3, "nothing is started twice by itself"
    assert shell.states() == ["complete", "failed", "complete"], "the runs alone tell it too"

    Path("swing-s1.plan").unlink()
    shell.call("--retry-failed")
    assert shell.states() == ["complete"] * 3
    assert shell.starts()[3:] == ["swing-s1"]
    assert indices() == [0, 1, 2]


def test_a_suite_killed_in_its_second_member_goes_on_there_with_the_timings_of_the_first(
    write: Callable[..., Path], shell: Shell
) -> None:
    write(seeds=[4, 5, 6])
    Path("swing-s1.plan").write_text("hang")
    command = shell.begin()
    until(Path("swing-s1.hangs").exists, "the second member")
    kill_tree(command)
    assert shell.states() == ["complete", "running", "pending"]
    first = json.loads((ROOT / "suite.json").read_text())["invocation"]
    stale = TimingsDirectory(FOLDER)
    run = stale.load().timings.root["sac_train"].runs[0]
    stale.record("sac_train", run.model_copy(update={"run_idx": 1}))  # of a half member

    Path("swing-s1.plan").write_text("hang")
    Path("swing-s1.hangs").unlink()
    again = shell.begin()
    until(Path("swing-s1.hangs").exists, "the second member again")
    assert indices() == [0], "the validated prefix alone, before the rest starts"
    again.send_signal(signal.SIGINT)
    shell.end(again, 130)
    assert shell.states() == ["complete", "suspended", "pending"]

    Path("swing-s1.plan").unlink()
    shell.call()
    assert shell.states() == ["complete"] * 3
    assert indices() == [0, 1, 2]
    assert shell.starts() == ["swing-s0", "swing-s1", "swing-s1", "swing-s1", "swing-s2"]
    assert json.loads((ROOT / "suite.json").read_text())["invocation"] == first


def test_a_stored_run_that_cannot_be_read_stops_the_suite_and_leaves_nobody_alone(
    write: Callable[..., Path], shell: Shell
) -> None:
    write(seeds=3)
    for name in ("swing-s0", "swing-s1"):
        Path(f"{name}.plan").write_text("hang")
    command = shell.begin("--parallel", "2")
    for name in ("swing-s0", "swing-s1"):
        until(Path(f"{name}.hangs").exists, name)
    (first,) = Path(".drivetrain").rglob("swing-s0/trainingrun.json")
    torn = first.parents[1] / "swing-s2" / first.name
    torn.parent.mkdir()
    torn.write_text("{}")
    (second,) = [
        child
        for child in psutil.Process(command.pid).children()
        if "swing-s1" in " ".join(child.cmdline())
    ]
    second.send_signal(signal.SIGINT)  # its place is free for the third
    said = shell.end(command, 1)
    assert f"the suite stopped: {torn}" in said or f"the suite stopped: {torn.absolute()}" in said
    assert shell.states() == ["suspended", "suspended", "pending"]
    assert str(torn) in (shell.members()[2].reason or "")


@pytest.mark.nightly
def test_a_member_left_behind_by_a_killed_command_is_waited_for(
    write: Callable[..., Path], shell: Shell
) -> None:
    write(seeds=2)
    Path("swing-s0.plan").write_text("hang")
    command = shell.begin()
    until(Path("swing-s0.hangs").exists, "the first member")
    child = psutil.Process(command.pid).children()[0]
    command.kill()
    command.communicate()
    assert child.is_running(), "it goes on by itself"
    refused = shell.call("--fresh", code=2)
    assert "--fresh would take its files away: stop it first" in refused
    again = shell.begin()
    assert again.stderr is not None
    line = again.stderr.readline()
    assert f"swing-s0 is driven already by process {child.pid}" in line
    assert line.rstrip().endswith("waiting for it")
    Path("swing-s0.plan").unlink()
    child.send_signal(signal.SIGINT)
    shell.end(again, 0)
    assert shell.states() == ["complete", "complete"]
    assert shell.starts() == ["swing-s0", "swing-s0", "swing-s1"]


def test_two_at_once_and_a_second_command_is_refused(
    write: Callable[..., Path], shell: Shell
) -> None:
    write(seeds=3)
    for name in ("swing-s0", "swing-s1"):
        Path(f"{name}.plan").write_text("hang")
    command = shell.begin("--parallel", "2")
    until(lambda: all(Path(f"swing-s{i}.hangs").exists() for i in (0, 1)), "two members")
    assert "is driven already by process" in shell.call(code=2)
    command.send_signal(signal.SIGTERM)
    assert "stopped; the same command goes on" in shell.end(command, 130)
    assert sorted(shell.starts()) == ["swing-s0", "swing-s1"]
    assert shell.states() == ["suspended", "suspended", "pending"]


def test_fresh_starts_over_and_keeps_what_was_there_and_so_does_a_member_without_proof(
    write: Callable[..., Path], shell: Shell
) -> None:
    write(seeds=2)
    shell.call()
    before = SuiteRecord.from_json((ROOT / "suite.json").read_bytes())
    write(seeds=2, template={"algo": {"name": "sac"}, "task": {"name": "inverted_pendulum"}})
    assert "a suite's template does not change" in shell.call(code=2)
    shell.call("--fresh")
    after = SuiteRecord.from_json((ROOT / "suite.json").read_bytes())
    assert after.invocation != before.invocation
    assert shell.states() == ["complete", "complete"]
    assert sorted(p.name for p in FOLDER.glob(".run*")) == [
        ".run_0_seed_0.replaced-1",
        ".run_1_seed_1.replaced-1",
    ]
    runs = TimingsDirectory(FOLDER).load().timings.root["sac_train"].runs
    assert [(run.run_idx, run.invocation) for run in runs] == [
        (0, after.invocation),
        (1, after.invocation),
    ]

    (FOLDER / "run_1_seed_1/run_summary.json").write_text("{")
    said = shell.call()
    assert "swing-s1 counts as complete no longer, and starts over" in said
    assert shell.starts()[4:] == ["swing-s1"]
    assert shell.states() == ["complete", "complete"]


def test_a_dry_run_shows_the_members_and_leaves_nothing(
    write: Callable[..., Path], folder: Path
) -> None:
    write(seeds=2)
    done = CliRunner().invoke(cli, ["suite", "-f", "suite.yaml", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "suites/swing/sac/inverted_pendulum/run_1_seed_1" in done.output
    assert "2 members are fine; 2 would be started" in done.output
    assert [path.name for path in folder.iterdir()] == ["suite.yaml"]
