"""The attempts of a run in order: when each began, how long it took, why it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_api.status import ConditionType, Phase
from drivetrain_operator.cli.figures import NOTHING, duration

if TYPE_CHECKING:
    from datetime import datetime

    from drivetrain_api.status import AttemptRecord, TrainingRunStatus

HEADER: Final = ("ATTEMPT", "BEGAN", "TOOK", "REASON", "EXIT", "COUNTED", "WHAT HAPPENED")
RIGHT: Final = ("ATTEMPT", "BEGAN", "TOOK", "EXIT")


@dataclass(frozen=True)
class Entry:
    """One attempt."""

    attempt: int
    began_at: datetime | None
    ended_at: datetime | None
    """None while it lives."""
    reason: str
    exit_code: int | None
    counted: bool | None
    """Whether it counts against maxRestarts; None while it lives."""
    message: str

    def cells(self, now: datetime) -> tuple[str, ...]:
        """As a row below `HEADER`."""
        began = NOTHING if self.began_at is None else _ago(now, self.began_at)
        until = self.ended_at or now
        took = NOTHING if self.began_at is None else _span(self.began_at, until)
        counted = "" if self.counted is None else "yes" if self.counted else "no"
        return (
            str(self.attempt),
            began,
            took,
            self.reason,
            NOTHING if self.exit_code is None else str(self.exit_code),
            counted,
            self.message,
        )


def _span(since: datetime, until: datetime) -> str:
    return duration((until - since).total_seconds())


def _ago(now: datetime, moment: datetime) -> str:
    return f"{_span(moment, now)} ago"


def timeline(status: TrainingRunStatus) -> list[Entry]:
    """The attempts that the status remembers, oldest first, the living one last."""
    entries = [_ended(record) for record in status.history]
    if status.attempt and not (entries and entries[-1].attempt == status.attempt):
        entries.append(_living(status))
    return entries


def forgotten(status: TrainingRunStatus) -> int:
    """Attempts that ended before the oldest one that the status remembers."""
    first = next(iter(timeline(status)), None)
    return first.attempt - 1 if first is not None else 0


def _ended(record: AttemptRecord) -> Entry:
    return Entry(
        record.attempt,
        record.started_at,
        record.ended_at,
        record.reason,
        record.exit_code,
        record.counted,
        record.message,
    )


def _living(status: TrainingRunStatus) -> Entry:
    return Entry(
        attempt=status.attempt,
        began_at=status.attempt_started_at,
        ended_at=None,
        reason=_state(status),
        exit_code=None,
        counted=None,
        message=status.message or "",
    )


def _state(status: TrainingRunStatus) -> str:
    """Running, or the reason of what it waits for."""
    if status.attempt_running_at is not None:
        return str(Phase.RUNNING)
    placed = status.is_true(ConditionType.SCHEDULED)
    waits = status.condition(ConditionType.RUNNING if placed else ConditionType.SCHEDULED)
    return waits.reason if waits is not None else str(status.phase or Phase.PENDING)


def next_words(status: TrainingRunStatus, now: datetime) -> str:
    """When the next attempt follows; empty where none is on its way."""
    if status.next_attempt_at is None or status.phase is not Phase.RESTARTING:
        return ""
    left = (status.next_attempt_at - now).total_seconds()
    when = f"in {duration(left)}" if left > 0 else "once the last pods are gone"
    return f"attempt {status.attempt + 1} follows {when}"
