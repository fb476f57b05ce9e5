"""What goes wrong between two processes, each fault with the class that a report names."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


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

    classification: ClassVar[FailureClass] = FailureClass.UNKNOWN


class PeerDiedError(RuntimeFault):
    """The process at the other end is gone."""

    def __init__(self, role: str, pid: int, detail: str = "") -> None:
        self.role = role
        self.pid = pid
        super().__init__(f"{role} process {pid} died" + (f": {detail}" if detail else ""))


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
