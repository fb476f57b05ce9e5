"""A trial from its seed to its verdict."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.chaos.arena import Arena, clear
from tests.support.chaos.expected import expected
from tests.support.chaos.invariants import faults_of
from tests.support.chaos.means import Means
from tests.support.chaos.plan import Fault, Plan, When
from tests.support.chaos.strikes import TYPED_AGAIN, Trouble, strike
from tests.support.chaos.watch import Watch

LOOK_S = 0.1
SHARP_LOOK_S = 0.01
"""Where a checkpoint is waited for that takes milliseconds to write."""
PATIENCE_S = 420.0
"""For a trial on a machine that does much else; a quiet one takes 10 to 40 seconds."""
INTERRUPTED = 130
_TOLD = 6000
_FINE = ("TrainingComplete", "TargetReached")


@dataclass
class Result:
    """How a trial went."""

    plan: Plan
    struck: bool = False
    phase: str = ""
    endings: list[str] = field(default_factory=list)
    """Reasons of the attempts, in order."""
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    told: str = ""

    def line(self) -> str:
        """For a report: one JSON object."""
        plan = self.plan
        return json.dumps(
            {
                "seed": plan.seed,
                "fault": plan.fault,
                "victim": plan.victim,
                "topology": plan.topology,
                "when": plan.when,
                "struck": self.struck,
                "phase": self.phase,
                "endings": self.endings,
                "problems": self.problems,
                "seconds": round(self.seconds, 1),
            }
        )


def run_trial(plan: Plan, means: Means, folder: Path, *, stall_s: int) -> Result:
    """Run it; the folder is removed where nothing is wrong."""
    began = time.monotonic()
    result = Result(plan)
    with Arena(folder, plan, means) as arena:
        watch = Watch(arena)
        _Course(plan, arena, watch, result, stall_s).run()
        told = (folder / "told").read_text(errors="replace")
        result.told = told[-_TOLD:]
        if not result.problems:
            result.problems += _judged(result, watch)
            result.problems += faults_of(plan, arena, watch)
    result.seconds = time.monotonic() - began
    if not result.problems:
        clear(folder)
    return result


@dataclass
class _Course:
    plan: Plan
    arena: Arena
    watch: Watch
    result: Result
    stall_s: int

    def run(self) -> None:
        ends = time.monotonic() + PATIENCE_S
        self.arena.type(self.stall_s)
        while not self._over() and not self.watch.come(self.plan) and time.monotonic() < ends:
            self._look()
        until = time.monotonic() + self._delay()
        while not self._over() and time.monotonic() < until:
            self._look()
        trouble = Trouble(struck=False) if self._over() else strike(self.plan, self.arena)
        self.result.struck = trouble.struck
        self._last(trouble)
        self._finish(trouble, ends)
        if self.plan.fault is not Fault.RESET:  # whose end is done only once
            trouble.mend()
        self.watch.look()
        status = self.watch.status
        self.result.phase = status.get("phase", "")
        self.result.endings = [record["reason"] for record in status.get("history", ())]

    def _delay(self) -> float:
        """A checkpoint takes milliseconds to write."""
        return self.plan.delay_s / (50 if self.plan.when is When.CHECKPOINT else 1)

    def _over(self) -> bool:
        return self.arena.command.poll() is not None

    def _look(self) -> None:
        self.watch.look()
        sharp = not self.result.struck and self.plan.when is When.CHECKPOINT
        time.sleep(SHARP_LOOK_S if sharp else LOOK_S)

    def _last(self, trouble: Trouble) -> None:
        """While the trouble lasts; a run that is taken for hung is relieved then."""
        if self.plan.lasts_s is None:
            return
        until = time.monotonic() + self.plan.lasts_s
        while time.monotonic() < until and not self._over():
            trouble.again()
            self._look()
        trouble.mend()

    def _finish(self, trouble: Trouble, ends: float) -> None:
        """To the end of the command, which is typed again where it was ended."""
        again = (self.plan.fault, self.plan.victim) in TYPED_AGAIN and trouble.struck
        while time.monotonic() < ends:
            trouble.again()
            if self.plan.fault is Fault.NETWORK and self.watch.status.get("history"):
                trouble.mend()
                trouble.mend = lambda: None
            if self._over():
                code = self.arena.command.returncode
                if not again or code == 0:
                    break
                again = False
                self.arena.type(self.stall_s)
            self._look()
        else:
            self.result.problems.append(f"not over after {PATIENCE_S:.0f} s: {self.watch.status}")
            return
        if self.arena.command.returncode not in (0, 1):
            self.result.problems.append(f"the command ended with {self.arena.command.returncode}")


def _judged(result: Result, watch: Watch) -> list[str]:
    """What is wrong with the run's end, and with what was said of each attempt's."""
    wanted = expected(result.plan)
    problems: list[str] = []
    records: list[dict[str, Any]] = list(watch.status.get("history", ()))
    ended = [record for record in records if record["reason"] not in _FINE]
    problems += [
        f"attempt {record['attempt']} ended for another reason: {record}"
        for record in ended
        if not result.struck or not any(ending.fits(record) for ending in wanted.endings)
    ]
    if result.phase == "Failed":
        if not (wanted.may_fail and ended):
            problems.append(f"the run failed: {watch.status.get('message')}")
    elif result.phase != "Complete":
        problems.append(f"the run is {result.phase}: {watch.status.get('message')}")
    if result.struck and wanted.certain and not ended:
        problems.append("no attempt ended, though the fault struck")
    return problems
