"""Whether a run is live, over, or gone without a word."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_trainer.analysis.quantities import span

if TYPE_CHECKING:
    from drivetrain_api.artifacts.run_summary import RunSummary

QUIET_SECONDS: Final = 10.0
"""A running run that has written nothing for so long is no longer called live."""
QUIET_GAPS: Final = 5.0
"""But not before so many of its usual gaps between two reports have passed."""
LOST_SECONDS: Final = 30.0
"""A running run that has written nothing for so long is called lost."""
LOST_GAPS: Final = 20.0
"""But not before so many of its usual gaps between two reports have passed."""


class State(StrEnum):
    """What a run is."""

    LIVE = "live"
    """It is running, and has written just now."""
    QUIET = "quiet"
    """Its summary says running, but it writes less often than it did."""
    LOST = "lost"
    """Its summary says running, but it has fallen silent: killed, or hung."""
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    """Stopped at a checkpoint, to go on."""
    FAILED = "failed"


@dataclass(frozen=True)
class Condition:
    """The state of a run, in a word and in a sentence."""

    state: State
    quiet_seconds: float
    """Since it last wrote a report or its summary."""
    says: str


def condition_of(summary: RunSummary, *, written: float, gap: float, now: float) -> Condition:
    """Judge a run by its summary, and by how long it has been silent.

    Args:
        summary: Its summary.
        written: When it last wrote a report or its summary, seconds since the epoch.
        gap: Usual seconds between two of its reports.
        now: The present, seconds since the epoch.
    """
    quiet = max(now - written, 0.0)
    if summary.status is not RunStatus.RUNNING:
        return Condition(State(summary.status.value), quiet, _ended(summary, quiet))
    usual = f"its summary says running, but nothing has been written for {span(quiet)} (a report "
    usual += f"came every {gap:.2g} s)."
    if quiet < max(QUIET_SECONDS, QUIET_GAPS * gap):
        return Condition(State.LIVE, quiet, f"Live: it last wrote {span(quiet)} ago.")
    if quiet < max(LOST_SECONDS, LOST_GAPS * gap):
        words = f"Quiet: {usual} An evaluation, a checkpoint, or it has just been killed."
        return Condition(State.QUIET, quiet, words)
    words = f"Lost: {usual} It was killed, it hangs, or it is in a long evaluation or checkpoint."
    return Condition(State.LOST, quiet, words)


def _ended(summary: RunSummary, quiet: float) -> str:
    ended = f"{summary.status.value.capitalize()} {span(quiet)} ago."
    words = ": ".join(filter(None, (summary.error_type, summary.error)))
    return f"{ended} {words}" if words else ended
