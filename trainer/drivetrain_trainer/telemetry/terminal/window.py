"""The two-second sliding mean, and the pace from which the remaining time is estimated."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WINDOW_S = 2.0
"""Seconds that terminal values are averaged over."""
RESOLUTION = 64
"""Buckets of a window: bounds the work of a redraw, whatever the rate of reports."""
PACE_S = 60.0
"""Seconds that the remaining time is estimated from."""


@dataclass
class _Bucket:
    start: float
    samples: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WindowMeans:
    """Means over the window, with the last known value of a tag that it does not hold."""

    samples: int
    """Reports in the window that count as samples."""
    values: Mapping[str, float]
    """Tag -> mean; a NaN in the window makes the mean NaN."""


class SlidingMean:
    """Mean of each tag over the reports of the last `span_s` seconds.

    Reports closer together than a 64th of the span share a bucket, which leaves with its
    oldest report. A tag keeps its last known value once its reports have left, so that
    rare metrics do not blink.
    """

    def __init__(self, span_s: float = WINDOW_S) -> None:
        self._span_s = span_s
        self._width_s = span_s / RESOLUTION
        self._buckets: deque[_Bucket] = deque()
        self._last: dict[str, float] = {}

    def append(self, now: float, values: Mapping[str, float], *, sample: bool = True) -> None:
        """Take a report at time `now` (seconds, monotonic); `sample` says whether it counts."""
        self._evict(now)
        if not self._buckets or now - self._buckets[-1].start >= self._width_s:
            self._buckets.append(_Bucket(now))
        bucket = self._buckets[-1]
        bucket.samples += sample
        for tag, value in values.items():
            bucket.sums[tag] = bucket.sums.get(tag, 0.0) + value
            bucket.counts[tag] = bucket.counts.get(tag, 0) + 1
        self._last.update(values)

    def means(self, now: float) -> WindowMeans:
        """The means at time `now`."""
        self._evict(now)
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for bucket in self._buckets:
            for tag, total in bucket.sums.items():
                sums[tag] = sums.get(tag, 0.0) + total
                counts[tag] = counts.get(tag, 0) + bucket.counts[tag]
        means = {tag: total / counts[tag] for tag, total in sums.items()}
        return WindowMeans(sum(b.samples for b in self._buckets), self._last | means)

    def forget(self, tags: Iterable[str]) -> None:
        """Drop what is known of some tags."""
        for tag in tags:
            self._last.pop(tag, None)
            for bucket in self._buckets:
                bucket.sums.pop(tag, None)
                bucket.counts.pop(tag, None)

    def _evict(self, now: float) -> None:
        while self._buckets and now - self._buckets[0].start > self._span_s:
            self._buckets.popleft()


class Pace:
    """Progress a second over the last minute, pauses included."""

    def __init__(self, span_s: float = PACE_S) -> None:
        self._span_s = span_s
        self._points: deque[tuple[float, int]] = deque()

    def append(self, now: float, position: int) -> None:
        """Take the position at time `now`; at most one point a `span_s`/64 is kept."""
        if self._points and now - self._points[-1][0] < self._span_s / RESOLUTION:
            return
        self._points.append((now, position))
        while len(self._points) > 1 and now - self._points[0][0] > self._span_s:
            self._points.popleft()

    def rate(self, now: float, position: int) -> float | None:
        """Units a second up to `now`, or None before there is anything to compare."""
        if not self._points:
            return None
        then, start = self._points[0]
        if now <= then or position <= start:
            return None
        return (position - start) / (now - then)
