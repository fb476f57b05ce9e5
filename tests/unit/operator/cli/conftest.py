from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from drivetrain_operator.cli.main import cli
from drivetrain_operator.local.processes import TOKEN_VARIABLE
from drivetrain_operator.local.store import LocalStore

STAND_IN = Path(__file__).parent.parent / "local/stand_in.py"
QUICK = ["--algo", "sac", "--task", "half_cheetah", "restart.backoff_seconds=0"]
NAME = "half-cheetah-sac"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory of every test: empty, and no state of others in reach."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("DRIVETRAIN_STATE_DIR", "DRIVETRAIN_LAUNCHER", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def call() -> Callable[..., Result]:
    """Run a command in this process; for what starts nothing."""

    def invoke(*words: str, text: str | None = None) -> Result:
        result = CliRunner().invoke(cli, list(words), input=text, prog_name="drivetrain")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@dataclass
class Command:
    """`drivetrain run` as a process of its own, with the stand-in for the launcher."""

    process: subprocess.Popen[str]
    store: LocalStore

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def status(self) -> dict[str, Any]:
        run = self.store.get(NAME)
        assert run is not None
        return run.status.model_dump(mode="json", exclude_none=True)

    def until_ready(self) -> None:
        """Until the stand-in waits to be stopped."""
        self.until(lambda: list(self.store.folder(NAME).glob("pods/*/volumes/scratch/ready")))

    def until(self, condition: Callable[[], Any]) -> None:
        ends = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < ends, "not within 10 s"
            time.sleep(0.01)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def begin(plan: str, *words: str, **options: Any) -> Command:
        launcher = shlex.join([sys.executable, "-S", str(STAND_IN), plan])
        process = subprocess.Popen(
            [sys.executable, "-m", "drivetrain_operator.cli.main", "run", *(words or QUICK)],
            env={**os.environ, "DRIVETRAIN_LAUNCHER": launcher},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            **options,
        )
        command = Command(process, LocalStore(folder / ".drivetrain"))
        started.append(command)
        return command

    yield begin
    for command in started:
        command.process.kill()
        command.process.communicate()
    assert leftovers(folder) == []


def leftovers(folder: Path) -> list[int]:
    """Processes of this test's pods, soon after nobody may own one any more."""
    ends = time.monotonic() + 3
    while (found := list(marked(folder))) and time.monotonic() < ends:
        time.sleep(0.02)
    return found


def marked(folder: Path) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        ours = f"DRIVETRAIN_STORAGE={folder}".encode() in environment
        if ours and TOKEN_VARIABLE.encode() in environment:
            yield int(entry.name)


@pytest.fixture
def manifest(folder: Path) -> Callable[..., Path]:
    """A manifest file with changes to its spec."""

    def write(name: str = "run.yaml", **spec: Any) -> Path:
        content = {
            "apiVersion": "drivetrain.dev/v1alpha1",
            "kind": "TrainingRun",
            "metadata": {"name": NAME},
            "spec": {
                "algo": {"name": "sac"},
                "task": {"name": "half_cheetah"},
                "restart": {"backoffSeconds": 0},
                **spec,
            },
        }
        path = folder / name
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    return write
