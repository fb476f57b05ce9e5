"""The launcher's loop: wait for torchrun, pass a stop on, and see that everything ends in time.

A stop is one SIGTERM to torchrun, which passes it to the ranks and waits for them. What has
not ended shortly before the grace period does is killed, so that there is time left to say so.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from drivetrain_trainer.launcher.outcome import Ending
from drivetrain_trainer.launcher.processes import descendants, kill_descendants, reap, send
from drivetrain_trainer.launcher.progress import INTERVAL_SECONDS
from drivetrain_trainer.launcher.torchrun import read_report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.memory import MemoryCgroup
    from drivetrain_trainer.launcher.outcome import Verdict
    from drivetrain_trainer.launcher.progress import ProgressPublisher
    from drivetrain_trainer.launcher.scratch import Scratch
    from drivetrain_trainer.launcher.signals import StopSignals

log = structlog.get_logger(__name__)

LINGER_SECONDS: Final = 5.0
"""How long what outlives its purpose may take to end by itself."""
REPORT_SECONDS: Final = 1.0
"""What torchrun gets to write its report once its ranks were killed; at most half of what the
grace period has left then, for the launcher has a report of its own to make."""
TICK_SECONDS: Final = 0.1
"""How often the processes are looked at while something is about to end."""

_LEAST_MARGIN = 1.0
_MOST_MARGIN = 5.0


def time_to_stop(grace_seconds: float) -> float:
    """Seconds that ranks get to checkpoint: the grace period, less what the end takes."""
    return grace_seconds - min(_MOST_MARGIN, max(_LEAST_MARGIN, grace_seconds / 10))


class Companion(Protocol):
    """What runs beside the ranks for them."""

    def poll(self, codes: Mapping[int, int]) -> Verdict | None:
        """Look after it; the verdict where the attempt cannot go on.

        Args:
            codes: Exit codes of the children that have ended so far, by process id.
        """

    def stop(self) -> None:
        """End it, the ranks having ended; within a second or two."""


class Supervisor:
    """Watches one torchrun from its start to the end of its last descendant."""

    def __init__(
        self,
        *,
        signals: StopSignals,
        publisher: ProgressPublisher,
        scratch: Scratch,
        ranks: range,
        memory: MemoryCgroup,
        companion: Companion,
        grace_seconds: float,
        alone: bool,
    ) -> None:
        """Create the supervisor.

        Args:
            signals: What asks to stop.
            publisher: Polled every second.
            scratch: Where torchrun's report and the ranks' outcomes will be.
            ranks: Ranks of this pod.
            memory: Asked whether the kernel killed for memory.
            companion: Looked after while the ranks run, and ended after them.
            grace_seconds: From the stop signal to the kill of the whole pod.
            alone: Whether this pod has all ranks; torchrun must not wait for other pods then.
        """
        self._signals = signals
        self._publisher = publisher
        self._scratch = scratch
        self._ranks = ranks
        self._memory = memory
        self._companion = companion
        self._failure: Verdict | None = None
        self._oom_kills = memory.oom_kills()
        self._seconds = time_to_stop(grace_seconds)
        self._margin = grace_seconds - self._seconds
        self._alone = alone
        self._codes: dict[int, int] = {}
        self._stopped_at: float | None = None
        self._killed_after: float | None = None
        self._idle_since: float | None = None

    def run(self, torchrun: int) -> Ending:
        """Wait until nothing is left below this process.

        Args:
            torchrun: Its process id.
        """
        dismissed = False
        while torchrun not in self._codes and not dismissed:
            self._pass_stop_on(torchrun)
            if self._overdue():
                self._kill_ranks(torchrun)
                break
            dismissed = self._lingers(torchrun)
            self._wait(TICK_SECONDS if self._watchful else INTERVAL_SECONDS)
        if self._stopped_at is None:  # it may be why the ranks ended
            self._failure = self._companion.poll(self._codes)
        self._end_torchrun(torchrun)
        self._companion.stop()
        self._clear_away()
        self._publisher.poll()
        return Ending(
            torchrun_code=0 if dismissed else self._codes.get(torchrun, -signal.SIGKILL),
            report=read_report(self._scratch.torchrun),
            stop=self._signals.requested,
            killed_after=self._killed_after,
            out_of_memory=self._out_of_memory(),
            failure=self._failure,
        )

    @property
    def _watchful(self) -> bool:
        return self._stopped_at is not None or self._idle_since is not None

    def _pass_stop_on(self, torchrun: int) -> None:
        """A signal, or a companion that failed, stops the ranks; both let them checkpoint."""
        if self._stopped_at is not None:
            return
        if self._signals.requested is not None:
            log.info("stopping", signal=self._signals.requested.name, seconds=self._seconds)
        else:
            self._failure = self._companion.poll(self._codes)
            if self._failure is None:
                return
            log.error("stopping", reason=self._failure.message, seconds=self._seconds)
        self._stopped_at = time.monotonic()
        send(torchrun, signal.SIGTERM)

    def _overdue(self) -> bool:
        if self._stopped_at is None:
            return False
        return self._signals.urgent or time.monotonic() - self._stopped_at >= self._seconds

    def _lingers(self, torchrun: int) -> bool:
        """Whether torchrun stays although its ranks have reported and are gone.

        Among several pods it waits for the others, whose store it may hold, unless this one
        must stop.
        """
        if not (self._alone or self._stopped_at is not None):
            return False
        reported = all(self._scratch.outcome(rank).exists() for rank in self._ranks)
        if not reported or descendants(torchrun):
            self._idle_since = None
            return False
        now = time.monotonic()
        self._idle_since = self._idle_since or now
        return now - self._idle_since >= LINGER_SECONDS

    def _kill_ranks(self, torchrun: int) -> None:
        """Kill all but torchrun, and let that say what it saw."""
        assert self._stopped_at is not None  # only a stop can be overdue
        self._killed_after = time.monotonic() - self._stopped_at
        log.warning("killing what did not stop", seconds=round(self._killed_after, 1))
        ends = time.monotonic() + min(REPORT_SECONDS, self._margin / 2)
        while torchrun not in self._codes and time.monotonic() < ends:
            for pid in descendants(os.getpid()):
                if pid != torchrun:
                    send(pid, signal.SIGKILL)
            self._wait(TICK_SECONDS)

    def _end_torchrun(self, torchrun: int) -> None:
        if torchrun not in self._codes:
            send(torchrun, signal.SIGKILL)
            while torchrun not in self._codes:
                self._wait(TICK_SECONDS)

    def _clear_away(self) -> None:
        """End what torchrun left behind: SIGTERM first where there is time, then SIGKILL."""
        left = descendants(os.getpid())
        if left and self._killed_after is None:
            log.warning("processes outlived torchrun", count=len(left))
            for pid in left:
                send(pid, signal.SIGTERM)
            ends = time.monotonic() + self._time_left()
            while descendants(os.getpid()) and time.monotonic() < ends and not self._overdue():
                self._wait(TICK_SECONDS)
        kill_descendants(LINGER_SECONDS)

    def _time_left(self) -> float:
        if self._stopped_at is None:
            return LINGER_SECONDS
        return min(LINGER_SECONDS, self._stopped_at + self._seconds - time.monotonic())

    def _wait(self, seconds: float) -> None:
        self._signals.wait(seconds)
        self._codes |= reap()
        self._publisher.poll()

    def _out_of_memory(self) -> str | None:
        kills = self._memory.oom_kills() - self._oom_kills
        if kills <= 0:
            return None
        limit = self._memory.limit_bytes() / (1 << 20)
        return (
            f"out of memory (the kernel killed {kills} process(es); the limit is {limit:.0f} MiB)"
        )
