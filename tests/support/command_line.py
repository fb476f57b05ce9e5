"""``drivetrain`` as a person types it: a working directory, commands, and what they started."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import yaml

from drivetrain_api.status import TrainingRunStatus

TIMEOUT = 120.0
SHM = Path("/dev/shm")
DRIVETRAIN = str(Path(sys.executable).with_name("drivetrain"))


@dataclass
class CommandLine:
    """A working directory with a manifest, and the commands typed in it."""

    folder: Path
    name: str
    """Of the run in the manifest."""
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, *overrides: str) -> subprocess.Popen[str]:
        """Start ``drivetrain run``."""
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

    def call(self, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Any other command, to its end, which must have that exit code."""
        done = subprocess.run(
            [DRIVETRAIN, *words], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def status(self) -> TrainingRunStatus:
        printed = self.call("status", self.name, "-o", "yaml").stdout
        return TrainingRunStatus.model_validate(yaml.safe_load(printed)["status"])

    def directories(self) -> list[Path]:
        """Run directories, oldest first."""
        return sorted(self.folder.glob("logs/*/*/*"))

    def progress(self) -> int:
        """Environment steps in the newest run summary; 0 before there is one."""
        found = [path for each in self.directories() for path in each.glob("run_summary.json")]
        if not found:
            return 0
        return int(json.loads(found[-1].read_text())["total_env_steps"])

    def checkpoints(self) -> list[str]:
        found = self.folder.glob("logs/*/*/*/checkpoints/step_*")
        return sorted(path.name for path in found)


@contextmanager
def command_line(folder: Path, manifest: str) -> Iterator[CommandLine]:
    """Ends what was started, and insists that nothing is left in shared memory."""
    (folder / "run.yaml").write_text(manifest)
    before = set(SHM.iterdir())
    made = CommandLine(folder, yaml.safe_load(manifest)["metadata"]["name"])
    try:
        yield made
    finally:
        for process in made.started:
            if process.poll() is None:
                for child in tree(process):
                    child.kill()
                process.kill()
            process.wait()
    assert set(SHM.iterdir()) <= before, "something is left in /dev/shm"


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


def gone(processes: list[psutil.Process]) -> bool:
    """Whether none of them runs any more (zombies that nobody reaped do not count)."""
    return all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes)
