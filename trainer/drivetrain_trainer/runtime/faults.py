"""What goes wrong between two processes, each fault with the class that a report names."""

from __future__ import annotations

import signal
import traceback
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

_MESSAGE_LIMIT: Final = 4_000
_TRACE_LIMIT: Final = 20_000


class FailureClass(StrEnum):
    """Who started an abnormal end."""

    LEARNER = "learner_failure"
    COLLECTOR = "collector_failure"
    BACKEND_WORKER = "backend_worker_failure"
    STALE_TICK = "timeout/stale_tick"
    CANCELLED = "external_cancellation"
    UNKNOWN = "unknown_failure"


class RuntimeFault(Exception):  # noqa: N818  # the abstract root; every fault below ends in Error
    """Root of the transport's faults."""

    classification: FailureClass = FailureClass.UNKNOWN
    """Whom it accuses."""


class PeerDiedError(RuntimeFault):
    """The process at the other end is gone."""

    def __init__(self, role: str, pid: int, detail: str = "") -> None:
        self.role = role
        self.pid = pid
        super().__init__(f"{role} process {pid} died" + (f": {detail}" if detail else ""))


class RankLostError(RuntimeFault):
    """A collective failed since another rank is gone; the cause is there, not here.

    Its name is `drivetrain_api.artifacts.outcome.RANK_LOST`.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(f"lost another rank: {detail}")


@dataclass(frozen=True)
class ChildFailure:
    """The exception that ended a child process, as it tells its parent."""

    error_type: str
    message: str
    trace: str
    tick: int | None = None
    """The tick that it happened in; None before the first."""
    accused: FailureClass | None = None
    """Whom the exception accuses, where that is not the child itself."""
    final: bool = False
    """Whether another attempt would end in the same way."""

    @classmethod
    def of(
        cls,
        error: BaseException,
        tick: int | None = None,
        accused: FailureClass | None = None,
        *,
        final: bool = False,
    ) -> Self:
        """Describe `error`; bounded, so that sending it never waits for a reader."""
        trace = "".join(traceback.format_exception(error))
        return cls(
            type(error).__name__,
            str(error)[:_MESSAGE_LIMIT],
            trace[-_TRACE_LIMIT:],
            tick,
            accused,
            final,
        )

    def __str__(self) -> str:
        where = "" if self.tick is None else f" in tick {self.tick}"
        return f"{self.error_type}{where}: {self.message}"


class ChildFailedError(PeerDiedError):
    """A child ended without being asked to; says how, and why where it could tell."""

    def __init__(
        self, role: str, pid: int, exitcode: int | None, failure: ChildFailure | None
    ) -> None:
        self.exitcode = exitcode
        self.signal = -exitcode if exitcode is not None and exitcode < 0 else None
        self.failure = failure
        if failure is not None and failure.accused is not None:
            self.classification = failure.accused
        super().__init__(role, pid, str(failure) if failure else exit_reason(exitcode))


class CollectorFailedError(ChildFailedError):
    """The collector failed, or was killed."""

    classification = FailureClass.COLLECTOR


def exit_reason(exitcode: int | None) -> str:
    """An exit status in words; negative ones are signals."""
    if exitcode is None:
        return "exit status unknown"
    if exitcode >= 0:
        return f"exit status {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    return f"killed by {name}"


class StaleTickError(RuntimeFault):
    """The process at the other end lives but did not answer in time."""

    classification = FailureClass.STALE_TICK

    def __init__(self, tick: int, waited_s: float, *, waiting_for: str = "the tick") -> None:
        self.tick = tick
        self.waited_s = waited_s
        super().__init__(f"tick {tick}: waited {waited_s:.1f} s for {waiting_for}")


class ProtocolError(RuntimeFault):
    """A slot does not carry what its reader must find there: both sides are out of step."""

    def __init__(self, what: str, *, expected: object, found: object) -> None:
        super().__init__(f"{what}: expected {expected}, found {found}")


class StopRequestedError(RuntimeFault):
    """A wait ended because this process was asked to stop."""

    classification = FailureClass.CANCELLED

    def __init__(self) -> None:
        super().__init__("asked to stop while waiting")
