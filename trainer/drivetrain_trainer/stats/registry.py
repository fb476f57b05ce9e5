"""The process's trackers: the default one, by functions of its own, and the named ones."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from drivetrain_trainer.stats.collective import reduce_and_name
from drivetrain_trainer.stats.tracker import StatsTracker

if TYPE_CHECKING:
    import torch.distributed as dist

_default = StatsTracker()
_named: dict[str, StatsTracker] = {}
_lock = threading.Lock()

scope = _default.scope
scalar = _default.scalar
denominator = _default.denominator
stat = _default.stat
stat_compact = _default.stat_compact
record_timing = _default.record_timing
export = _default.export


def get(name: str | None = None) -> StatsTracker:
    """The tracker of a name, made at its first use; the default one without a name."""
    if name is None:
        return _default
    with _lock:
        found = _named.get(name)
        if found is None:
            found = _named[name] = StatsTracker(name)
    return found


def export_all(reduce_group: dist.ProcessGroup | None = None) -> dict[str, float]:
    """Export all trackers together; see `StatsTracker.export`.

    With a group, collective: all its ranks call, whatever trackers and keys they have, and
    the number of collectives does not depend on those.

    Raises:
        ReduceTypeConflictError: on every rank, if two ranks, or two trackers, contradict
            each other.
    """
    with _lock:
        trackers = [_default, *_named.values()]
    return reduce_and_name([tracker.drain() for tracker in trackers], reduce_group)


def forget_all() -> None:
    """Drop all records and all named trackers; for tests, and for a process that forks."""
    with _lock:
        trackers = [_default, *_named.values()]
        _named.clear()
    for tracker in trackers:
        tracker.drain()
