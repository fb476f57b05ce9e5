"""Where a trial runs: namespaces, a file system and a memory cgroup of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import yaml
from tests.support.chaos.means import Means
from tests.support.chaos.plan import Fault, Plan, Victim

DRIVETRAIN = str(Path(sys.executable).with_name("drivetrain"))
MARK = "CHAOS_TRIAL"
"""Variable that every process of a trial inherits: what is left is found by it."""
DISK = "64m"
"""Of the file system that is filled."""
_MARKS = {
    Victim.LAUNCHER: "drivetrain-launcher",
    Victim.TORCHRUN: "launcher.agent",
    Victim.RANK: "drivetrain_trainer.train",
    Victim.COLLECTOR: "runtime.child_main",
}
_ENTER = 'cd "$1"; [ -z "$2" ] || echo $$ > "$2/cgroup.procs"; shift 2; exec "$@"'


@dataclass
class Arena:
    """One trial's; use as a context."""

    folder: Path
    plan: Plan
    means: Means
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    command: subprocess.Popen[bytes] = field(init=False)
    group: Path | None = None
    """The memory cgroup."""
    _holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        for name in ("tmp", "clock", "work"):
            (self.folder / name).mkdir(parents=True)
        if self.means.namespaces:
            self._holder = self._hold()
        if self.plan.fault is Fault.MEMORY and self.means.memory_group is not None:
            self.group = self.means.memory_group / f"chaos-{self.token[:8]}"
            self.group.mkdir()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.left():
            with suppress(psutil.Error):
                process.kill()
        if hasattr(self, "command"):
            self.command.wait()
        if self.group is not None:
            _remove_group(self.group)
        if self._holder is not None:
            assert self._holder.stdin is not None
            self._holder.stdin.close()
            self._holder.wait()

    def _hold(self) -> subprocess.Popen[bytes]:
        """Namespaces that last until our end of a pipe is closed, with what is mounted there."""
        disk = f"mount -t tmpfs -o size={DISK} chaos '{{}}'"
        full = {Fault.DISK_FULL: "work/logs", Fault.STATE_FULL: "work"}.get(self.plan.fault)
        steps = ["ip link set lo up", "mount -t tmpfs -o size=1g chaos /dev/shm"]
        if full is not None:
            (self.folder / full).mkdir(exist_ok=True)
            steps.append(disk.format(self.folder / full))
        script = " && ".join([*steps, "echo ready", "exec cat"])
        holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert holder.stdout is not None
        with holder.stdout as said:
            assert said.readline() == b"ready\n", "no namespaces for the trial"
        return holder

    # -- what is typed ---------------------------------------------------------------------

    @property
    def work(self) -> Path:
        """The working directory, as it is seen from outside."""
        root = Path(f"/proc/{self._holder.pid}/root") if self._holder is not None else Path("/")
        return root / (self.folder / "work").relative_to("/")

    def type(self, stall_s: int) -> None:
        """Start ``drivetrain run``, first or again."""
        path = self.work / "run.yaml"
        if not path.exists():
            path.write_text(yaml.safe_dump(self.plan.manifest(stall_s=stall_s)))
        environment = {
            **{name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
            MARK: self.token,
            "TMPDIR": str(self.folder / "tmp"),
            "OMP_NUM_THREADS": "1",
        }
        if self.plan.fault is Fault.CLOCK:
            environment |= {
                "LD_PRELOAD": str(self.means.clock),
                "CHAOS_CLOCK": str(self.folder / "clock"),
            }
        with (self.folder / "told").open("ab") as told:
            self.command = subprocess.Popen(
                self.inside(DRIVETRAIN, "run", "-f", "run.yaml"),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                start_new_session=True,
            )

    def inside(self, *words: str | Path) -> list[str]:
        """A command line within the trial's namespaces and memory cgroup."""
        enter = (
            ["nsenter", f"--target={self._holder.pid}", "--mount", "--net"]
            if (self._holder is not None)
            else []
        )
        group = str(self.group or "")
        place = str(self.folder / "work")
        return [*enter, "sh", "-c", _ENTER, "sh", place, group, *map(str, words)]

    def do(self, *words: str) -> None:
        """A command within the trial's namespaces, to its end."""
        subprocess.run(self.inside(*words), check=True, capture_output=True)

    # -- what runs -------------------------------------------------------------------------

    def find(self, victim: Victim, rank: int) -> psutil.Process | None:
        """A process of the run, as long as it is there; a pod's where it has no rank."""
        if victim is Victim.COMMAND:
            return psutil.Process(self.command.pid) if self.command.poll() is None else None
        try:
            below = psutil.Process(self.command.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return None
        for process in below:
            with suppress(psutil.Error):
                if _MARKS[victim] in " ".join(process.cmdline()) and _of(process, victim, rank):
                    return process
        return None

    def left(self) -> list[psutil.Process]:
        """Processes of the trial, whoever their parents are; zombies are none."""
        found = []
        for pid in psutil.pids():
            with suppress(OSError, psutil.Error):
                if f"{MARK}={self.token}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(psutil.Process(pid))
        return found

    def memory_left(self) -> list[str]:
        """What lies in /dev/shm, where it is the trial's own."""
        if self._holder is None:
            return []
        return [path.name for path in Path(f"/proc/{self._holder.pid}/root/dev/shm").iterdir()]


def _of(process: psutil.Process, victim: Victim, rank: int) -> bool:
    environment = process.environ()
    if victim in (Victim.RANK, Victim.COLLECTOR):
        return environment.get("RANK") == str(rank)
    pods = environment.get("PET_NNODES", "1") != "1"
    return not pods or environment.get("PET_NODE_RANK", "0") == str(rank)


def _remove_group(group: Path) -> None:
    """What was killed a moment ago may still be in it."""
    for _ in range(100):
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)
    raise AssertionError(f"{group} still holds processes")


def clear(folder: Path) -> None:
    """Remove a trial's folder."""
    shutil.rmtree(folder, ignore_errors=True)
