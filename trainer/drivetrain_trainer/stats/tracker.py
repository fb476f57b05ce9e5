"""One namespace of statistics: recording it never waits for a device or another rank."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from drivetrain_trainer.stats.checks import (
    check_part,
    checked_figures,
    checked_mask,
    checked_scalar,
    checked_value,
)
from drivetrain_trainer.stats.collective import reduce_and_name
from drivetrain_trainer.stats.denominators import Denominators
from drivetrain_trainer.stats.moments import masked_moments
from drivetrain_trainer.stats.reduce_type import ReduceType, StatsError, UnknownDenominatorError
from drivetrain_trainer.stats.window import Entry, Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import torch.distributed as dist

TIMING_SCOPE = "timeperf"
"""Root of all timings."""

Item = TypeVar("Item")

_scopes: ContextVar[tuple[tuple[StatsTracker, str], ...]] = ContextVar("stats_scopes", default=())


class StatsTracker:
    """Records scalars and masked batches under scoped keys, and exports what they come to.

    Any thread and any asyncio task may record and export at any time: a record belongs to
    exactly one export. A scope is its context's own (a task begun inside goes on in it, a
    new thread does not).
    """

    def __init__(self, name: str | None = None) -> None:
        """An empty tracker.

        Args:
            name: root scope of all its keys; none for the default tracker.
        """
        if name is not None:
            check_part(name)
        self.name = name
        self._root = (name,) if name is not None else ()
        self._lock = threading.RLock()  # a signal handler may record while its thread does
        self._window = Window()
        self._denominators = Denominators()

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the keys recorded inside by ``name/``; nests.

        Raises:
            StatsError: if `name` is empty, or begins or ends with a slash.
        """
        check_part(name)
        token = _scopes.set((*_scopes.get(), (self, name)))
        try:
            yield
        finally:
            _scopes.reset(token)

    def scalar(self, /, **values: float | Tensor) -> None:
        """Record one value a key; an export gives their mean and, as ``key__count``, how many.

        Args:
            values: numbers, or tensors of one element, which stay on their device.

        Raises:
            StatsError: for anything else, naming the key.
            ReduceTypeConflictError: if a key is recorded otherwise since the last export.
        """
        checked = {key: checked_scalar(key, value) for key, value in self._keyed(values)}
        with self._lock:
            for key, entry in self._entries(checked, ReduceType.SCALAR).items():
                value = checked[key]
                if isinstance(value, Tensor):
                    entry.add_compact(value)
                else:
                    entry.add_scalar(value)

    def denominator(self, /, **masks: Tensor) -> None:
        """Declare masks of valid elements for the stats that follow; exported as their counts.

        Args:
            masks: bool tensors of the shapes of the stats that will name them.

        Raises:
            StatsError: if one is no bool tensor, naming the key.
        """
        kept = {key: checked_mask(key, mask) for key, mask in self._keyed(masks)}
        counts = {key: masked_moments(mask, mask) for key, mask in kept.items()}
        with self._lock:
            for key, entry in self._entries(kept, ReduceType.SUM).items():
                entry.add_compact(counts[key])
                self._denominators.declare(key, kept[key])

    def stat(
        self,
        /,
        denominator: str,
        reduce_type: ReduceType = ReduceType.AVG_MIN_MAX,
        **values: Tensor,
    ) -> None:
        """Record batches of which the elements valid under a mask count.

        Copies of value and mask stay on their device, whole, until the next export: cheap
        to record, but memory grows with every batch. See `stat_compact`.

        Args:
            denominator: name of a mask recorded before, in this scope or one around it.
            reduce_type: what an export makes of them; anything but SCALAR.
            values: real tensors of the mask's shape, on its device.

        Raises:
            UnknownDenominatorError: if the mask was not recorded before, naming the keys.
            StatsError: for a wrong shape, device or type, naming the key.
            ReduceTypeConflictError: if a key is recorded otherwise since the last export.
        """
        matched = self._matched(denominator, reduce_type, values)
        kept = {key: (value.detach().clone(), mask) for key, (value, mask) in matched.items()}
        with self._lock:
            for key, entry in self._entries(kept, reduce_type).items():
                entry.full.append(kept[key])

    def stat_compact(
        self,
        /,
        denominator: str,
        reduce_type: ReduceType = ReduceType.AVG_MIN_MAX,
        **values: Tensor,
    ) -> None:
        """As `stat`, but four float64 scalars a metric and batch are all that is kept.

        Masked sum, count, minimum and maximum are computed on the device at once, without
        waiting for it; the exported figures are the same.
        """
        matched = self._matched(denominator, reduce_type, values)
        figures = {key: masked_moments(value, mask) for key, (value, mask) in matched.items()}
        with self._lock:
            for key, entry in self._entries(figures, reduce_type).items():
                entry.add_compact(figures[key])

    def stat_figures(self, /, reduce_type: ReduceType, **figures: Tensor) -> None:
        """Record batches of which the four figures are known already; see `masked_moments`.

        For accumulators that keep figures of their own on a device, such as `DeviceMeans`.

        Args:
            reduce_type: what an export makes of them; anything but SCALAR.
            figures: float64 (4,): sum, count, least, greatest (inf and -inf where unknown,
                which no mean or sum reads).

        Raises:
            StatsError: for another shape or type, naming the key.
            ReduceTypeConflictError: if a key is recorded otherwise since the last export.
        """
        if ReduceType(reduce_type) is ReduceType.SCALAR:
            raise StatsError(f"stats {sorted(figures)} ask for SCALAR; record numbers with scalar")
        checked = {key: checked_figures(key, one) for key, one in self._keyed(figures)}
        with self._lock:
            for key, entry in self._entries(checked, reduce_type).items():
                entry.add_compact(checked[key])

    @contextmanager
    def record_timing(self, name: str) -> Iterator[None]:
        """Time a block, also one that raises; seconds under ``timeperf/``, whatever the scope.

        A named tracker's stands under ``timeperf/<tracker>/``. Host time by a monotonic
        clock: what a block has queued on a device but not waited for is not in it.
        """
        check_part(name)
        key = "/".join((TIMING_SCOPE, *self._root, name))
        started = time.perf_counter_ns()
        try:
            yield
        finally:
            seconds = (time.perf_counter_ns() - started) * 1e-9
            with self._lock:
                self._window.entry(key, ReduceType.SCALAR).add_scalar(seconds)

    def export(self, reduce_group: dist.ProcessGroup | None = None) -> dict[str, float]:
        """Figures of all records since the last export, which they end.

        Args:
            reduce_group: all its ranks export together and get the same figures; without
                one, those of this process alone.

        Returns:
            Output name -> value, in the order of the names; see `ReduceType`. Means and
            extremes of no valid element are left out, sums and counts of none are 0.

        Raises:
            ReduceTypeConflictError: on every rank, if two ranks recorded a key differently;
                the records of this export are lost.
        """
        return reduce_and_name([self.drain()], reduce_group)

    def drain(self) -> Mapping[str, Entry]:
        """Take the records since the last export out, for an export of several trackers."""
        with self._lock:
            window, self._window = self._window, Window()
            self._denominators.forget_own()
        return window.entries

    def _key(self, name: str) -> str:
        check_part(name)
        return "/".join((*self._path(), name))

    def _keyed(self, values: Mapping[str, Item]) -> Iterator[tuple[str, Item]]:
        """Full keys of a call, whose scope is looked up once."""
        prefix = "".join(f"{part}/" for part in self._path())
        for name, value in values.items():
            check_part(name)
            yield prefix + name, value

    def _path(self) -> tuple[str, ...]:
        return (*self._root, *(name for owner, name in _scopes.get() if owner is self))

    def _entries(self, keys: Iterable[str], reduce_type: ReduceType) -> dict[str, Entry]:
        """All entries of a call before any is added to: a refused call records nothing."""
        return {key: self._window.entry(key, reduce_type) for key in keys}

    def _matched(
        self, denominator: str, reduce_type: ReduceType, values: Mapping[str, Tensor]
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Full key -> (value, mask), checked without looking at an element."""
        if ReduceType(reduce_type) is ReduceType.SCALAR:
            raise StatsError(
                f"stats {sorted(values)} ask for SCALAR; record numbers with scalar(...)"
            )
        mask = self._mask(denominator, values)
        return {
            key: (checked_value(key, value, denominator, mask), mask)
            for key, value in self._keyed(values)
        }

    def _mask(self, name: str, values: Mapping[str, Tensor]) -> Tensor:
        path = self._path()
        tried = ["/".join((*path[:depth], name)) for depth in range(len(path), -1, -1)]
        with self._lock:
            for key in tried:
                mask = self._denominators.find(key)
                if mask is not None:
                    return mask
            known = self._denominators.names()
        stats = ", ".join(repr(self._key(value)) for value in values)
        raise UnknownDenominatorError(
            f"denominator {tried[0]!r} of {stats} is not recorded; call denominator(...) before "
            f"the stat (recorded: {', '.join(known) or 'none'})"
        )
