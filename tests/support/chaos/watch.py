"""What is seen of a run while it is troubled: its steps, its checkpoints, its status."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.support.chaos.arena import Arena
from tests.support.chaos.plan import NAME, Plan, Victim, When

_TAIL = 1 << 15


@dataclass
class Watch:
    """Looks at the files as any reader does: each must be whole, at any moment."""

    arena: Arena
    checkpoints: dict[int, int] = field(default_factory=dict)
    """Step of each checkpoint that was seen -> the newest attempt then."""
    figures: list[tuple[int, int]] = field(default_factory=list)
    """Attempt and steps of the status, as they changed."""
    descriptors: list[int] = field(default_factory=list)
    """How many the command held, at each look."""
    attempt: int = 0
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        """The executor's folder of the run."""
        return self.arena.work / ".drivetrain" / "runs" / NAME

    @property
    def directory(self) -> Path | None:
        """The run directory, once it is there."""
        found = sorted(self.arena.work.glob("logs/*/*/*"))
        return found[-1] if found else None

    def look(self) -> None:
        """Take note of everything."""
        stored = _read(self.state / "trainingrun.json")
        if stored is not None:
            self.status = stored.get("status", {})
            self.attempt = self.status.get("attempt", 0)
            steps = (self.status.get("progress") or {}).get("envSteps")
            if steps is not None and (self.attempt, steps) not in self.figures[-1:]:
                self.figures.append((self.attempt, steps))
        directory = self.directory
        if directory is not None:
            _read(directory / "run_summary.json")
            for path in directory.glob("checkpoints/step_*"):
                self.checkpoints.setdefault(int(path.name.removeprefix("step_")), self.attempt)
        with suppress(psutil.Error):
            self.descriptors.append(psutil.Process(self.arena.command.pid).num_fds())

    def steps(self) -> int:
        """Environment steps of the newest report, of any attempt."""
        path = self.directory / "metrics.jsonl" if self.directory is not None else None
        if path is None or not path.exists():
            return 0
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            lines = file.read().split(b"\n")[:-1]
        for line in reversed(lines):
            with suppress(ValueError):
                entry = json.loads(line)
                return int(entry.get("step", entry.get("start_env_steps", 0)))
        return 0

    def come(self, plan: Plan) -> bool:
        """Whether the moment has come that a fault waits for, and its victim is there."""
        return self._come(plan) and self.arena.find(plan.victim, plan.rank) is not None

    def _come(self, plan: Plan) -> bool:
        if plan.when is When.LAUNCHED:
            return self.arena.find(Victim.LAUNCHER, plan.rank) is not None
        if plan.when is When.RANKS:
            return self.arena.find(Victim.RANK, plan.rank) is not None
        if plan.when is When.COLLECTORS:
            return self.arena.find(Victim.COLLECTOR, plan.rank) is not None
        if plan.when is When.STEPS:
            return self.steps() >= max(1, plan.part * plan.steps)
        directory = self.directory
        return directory is not None and (
            any(directory.glob("checkpoints/.partial-*"))
            or len(self.checkpoints) > plan.part * plan.steps / plan.checkpoint_steps
        )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    found: dict[str, Any] = json.loads(text)  # a part of a file fails the trial here
    return found
