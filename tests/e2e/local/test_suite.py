"""``drivetrain suite`` with real training: killed whole in its second member, it goes on there."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from command_line import DRIVETRAIN, SHM, gone, tree
from suite_files import TEMPLATE

from drivetrain_api.artifacts.suite_record import SuiteMember, SuiteRecord
from drivetrain_api.timings.store import TimingsDirectory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STEPS = 400
LIMIT = 600.0
ROOT = "suites/swing"


class SuiteShell:
    """A folder with a suite, and the command typed in it."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        self.folder = folder
        self.root = folder / ROOT
        self.started: list[subprocess.Popen[bytes]] = []
        content = {
            "apiVersion": "drivetrain.dev/v1alpha1",
            "kind": "Suite",
            "metadata": {"name": "swing"},
            "spec": {
                "template": {
                    **TEMPLATE,
                    "training": {"totalEnvSteps": STEPS, "device": "cpu"},
                    "evaluator": {"interval": STEPS, "episodes": 1},
                    "checkpoint": {"interval": 40},
                    "restart": {"backoffSeconds": 0},
                },
                **spec,
            },
        }
        (folder / "suite.yaml").write_text(yaml.safe_dump(content))

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("ab") as output:
            process = subprocess.Popen(
                [DRIVETRAIN, "suite", "-f", "suite.yaml", *words],
                cwd=self.folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def record(self) -> SuiteRecord:
        return SuiteRecord.from_json((self.root / "suite.json").read_bytes())

    def steps(self, member: SuiteMember) -> int:
        path = self.root / member.run_directory / "run_summary.json"
        return int(json.loads(path.read_text())["total_env_steps"]) if path.exists() else 0

    def checkpoints(self, member: SuiteMember) -> list[Path]:
        return sorted((self.root / member.run_directory).glob("checkpoints/step_*"))

    def attempts(self, member: SuiteMember) -> int:
        config = self.root / member.run_directory / "run_config.json"
        return int(json.loads(config.read_text())["run"]["attempt"])

    def recorded(self, member: SuiteMember) -> dict[str, list[int | None]]:
        """Stage -> run indices in the timings of the member's artifact directory."""
        timings = TimingsDirectory(self.root / member.artifact_directory).load().timings.root
        return {name: [run.run_idx for run in stage.runs] for name, stage in timings.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = set(SHM.iterdir())
    yield tmp_path
    assert set(SHM.iterdir()) <= before, "something is left in /dev/shm"


def kill(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """SIGKILL to the command and its whole tree; who they were."""
    found = tree(process)
    for each in (psutil.Process(process.pid), *found):
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGKILL)
    process.wait()
    return found


@pytest.mark.parametrize(
    ("seeds", "search"),
    [
        pytest.param([1, 2], {}, id="two-members"),
        pytest.param(
            [1, 2, 3],
            {"grid": {"algo.actor_learning_rate": [3e-4, 1e-3]}},
            id="three-seeds-two-rates",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_killed_in_its_second_member_it_goes_on_at_the_right_place(
    folder: Path, seeds: list[int], search: dict[str, Any]
) -> None:
    shell = SuiteShell(folder, seeds=seeds, **search)
    command = shell.begin()
    try:
        until_second(shell, command)
        processes = kill(command)
    except BaseException:
        kill(command)
        raise
    until(lambda: gone(processes), "everything to be gone")
    before = shell.record()
    first, second, *others = before.members
    assert [str(m.state) for m in before.members] == [
        "complete",
        "running",
        *["pending"] * len(others),
    ]
    assert {tuple(indices) for indices in shell.recorded(first).values()} == {(0,)}
    summary = (shell.root / first.run_directory / "run_summary.json").read_bytes()
    reached = int(shell.checkpoints(second)[-1].name.removeprefix("step_"))

    assert shell.begin().wait(LIMIT) == 0, (folder / "output").read_text()
    after = shell.record()
    assert after.invocation == before.invocation
    assert {str(m.state) for m in after.members} == {"complete"}
    assert (shell.root / first.run_directory / "run_summary.json").read_bytes() == summary
    assert (shell.attempts(first), shell.attempts(second)) == (1, 2), "the second goes on"
    assert 0 < reached <= STEPS
    wanted = list(range(len(seeds)))
    for member in after.members:
        assert shell.steps(member) == STEPS
        stages = shell.recorded(member)
        assert stages["sac_train"] == stages["checkpoint_save"] == wanted
    out = (folder / "output").read_text()
    assert f"drivetrain compare {ROOT}" in out
    assert f"{len(after.members)} complete of {len(after.members)} members" in out


def until(
    condition: Callable[[], bool], what: str, process: subprocess.Popen[bytes] | None = None
) -> None:
    """Wait for a condition, which may be minutes of training away."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert process is None or process.poll() is None, f"the command ended before {what}"
        assert time.monotonic() < deadline, f"waited {LIMIT} s for {what}"
        time.sleep(0.02)


def until_second(shell: SuiteShell, command: subprocess.Popen[bytes]) -> None:
    """Until the second member has a checkpoint."""
    until((shell.root / "suite.json").exists, "the record", command)
    second = shell.record().members[1]
    until(lambda: bool(shell.checkpoints(second)), "a checkpoint of the second member", command)
