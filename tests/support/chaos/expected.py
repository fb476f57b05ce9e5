"""How a run may end after each fault: by which reasons its attempts, in which words."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from tests.support.chaos.plan import Fault, Plan, Topology, Victim, When

_FULL = r"No space left on device"
_LOST = (
    r"lost another rank|RankLost|[Cc]onnection|connect|cannot be reached|unreachable|torchrun"
    r" failed|[Tt]imed out|socket"
)


@dataclass(frozen=True)
class Ending:
    """What an attempt that the fault ended says."""

    reasons: tuple[str, ...]
    words: str
    """A regular expression that is found in the message."""

    def fits(self, record: dict[str, Any]) -> bool:
        """Whether a record of the status says this."""
        return record["reason"] in self.reasons and bool(re.search(self.words, record["message"]))


@dataclass(frozen=True)
class Expected:
    """What may come of a trial."""

    endings: tuple[Ending, ...] = ()
    """Of attempts before the last; none where the fault must not end one."""
    certain: bool = False
    """Whether one at least must have ended so."""
    may_fail: bool = False
    """Whether the run may fail, in the words of `endings`."""


def expected(plan: Plan) -> Expected:
    """What may come of a plan whose fault struck."""
    certain = plan.when is not When.CHECKPOINT and plan.part < 0.6
    lost, stalled = (
        Ending(("AttemptFailed",), _LOST),
        Ending(("Stalled",), r"no progress for \d+ s"),
    )
    full = Expected((Ending(("AttemptFailed",), _FULL),), may_fail=True)
    if plan.topology is Topology.PODS:  # the other pod may be the first to have ended
        full = replace(full, endings=(*full.endings, lost))
    silent = Ending(("AttemptFailed",), "without reporting an outcome")  # nowhere to write it
    limited = Ending(("AttemptFailed",), r"File too large")
    memory = Ending(("OOMKilled",), r"memory|OOM")
    return {
        Fault.KILL: Expected((_killed(plan),), certain=certain),
        Fault.HANG: Expected((stalled,), certain=certain),
        Fault.PAUSE: Expected(),
        Fault.STOP: Expected((Ending(("SuspendedBySpec",), ""),)),
        Fault.DISK_FULL: full,
        Fault.STATE_FULL: replace(full, endings=(*full.endings, silent)),
        Fault.FILE_LIMIT: Expected(
            (limited,), certain=certain and plan.rank == 0
        ),  # the large part
        Fault.MEMORY: Expected((memory,), certain=certain),
        Fault.NETWORK: Expected((lost, stalled), certain=certain)
        if plan.hangs
        else Expected((lost,)),
        Fault.RESET: Expected((lost,)),
        Fault.CLOCK: Expected(),
    }[plan.fault]


def _killed(plan: Plan) -> Ending:
    words = {
        Victim.COMMAND: "executor that ran this pod ended",
        Victim.LAUNCHER: r"137|SIGKILL",
        Victim.TORCHRUN: r"torchrun was killed by SIGKILL",
        Victim.RANK: rf"rank {plan.rank} was killed by SIGKILL",
        Victim.COLLECTOR: rf"rank {plan.rank}: collector_failure .*SIGKILL",
    }
    reason = "Disrupted" if plan.victim is Victim.COMMAND else "AttemptFailed"
    return Ending((reason,), words[plan.victim])
