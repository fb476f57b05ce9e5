"""One report after validation and cross-rank reduction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Record:
    """What backend and terminal of rank 0 receive for one report.

    `values` hold what is persisted; `display` holds figures that only the terminal shows.
    """

    env_steps: int
    """Environment steps over all ranks: the step axis."""
    iteration: int
    """Learner iterations done."""
    wall_time: float
    """Seconds since the epoch at submission."""
    values: Mapping[str, float]
    """Canonical tag -> value reduced over the ranks."""
    learner_rows_per_second: float | None = None
    """Replay rows learnt from a second, summed over the ranks."""
    buffer_rows: int | None = None
    """Transitions in the replay ring of rank 0."""
