"""One soak, from its first sample to its verdict; driven by whoever owns the processes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.artifacts.soak import MonitorFailure, SoakFinding
from drivetrain_api.base import INT64_MAX
from drivetrain_api.soak import UNSOAKABLE, unsoakable
from drivetrain_trainer.soak.samples import Sample, SampleStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_api.artifacts.soak import SoakFigures
    from drivetrain_trainer.soak.settings import MonitorSettings
    from drivetrain_trainer.soak.summary import SummaryWatch, Tick

_RUNNING: Final = "running"


@dataclass(frozen=True)
class Timing:
    """When what was seen, in seconds since the soak's start."""

    first_tick: float | None = None
    last_tick: float = 0.0
    first_steps: int = 0
    """Environment steps of the first summary: not 0 where the run was resumed."""
    learning: float | None = None
    moved: float = 0.0
    """The last change of iteration, steps or status; the soak's start before any."""


class Monitor:
    """Samples a run and knows at any moment whether it has started, stalled or lasted enough.

    It starts, stops and waits for nothing: `sample` is called every interval, `problem` and
    `overrun` tell what to do, and `drivetrain_trainer.soak.verdict` judges at the end.
    """

    def __init__(
        self,
        settings: MonitorSettings,
        sampler: Callable[[], SoakFigures],
        watch: SummaryWatch,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin a soak now.

        Args:
            settings: Intervals and limits.
            sampler: Takes one sample of the run's processes.
            watch: Follows the run's summary.
            clock: Monotonic seconds.
        """
        self.settings = settings
        self.watch = watch
        self.store = SampleStore()
        self.timing = Timing()
        self.restarts = 0
        """Times that the run began again during the soak."""
        self.cpu_s = 0.0
        self.started_at = datetime.now(UTC)
        self._sampler = sampler
        self._clock = clock
        self._begun = clock()
        self._last: Tick | None = None
        self._mark: Tick | None = None
        self._mark_at = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the soak's start."""
        return self._clock() - self._begun

    @property
    def unsoakable(self) -> str | None:
        """Why the run's algorithm cannot be soaked; None where it can, or is not known yet."""
        name = self.watch.tick.algo if self.watch.tick is not None else ""
        return unsoakable(AlgoName(name)) if name in UNSOAKABLE else None

    def sample(self) -> None:
        """Take a sample of the processes and of the run's summary."""
        began = time.thread_time()
        at = self.elapsed
        sample = Sample.single(at, self._sampler())
        self.watch.look()
        self.store.add(self._with_tick(sample, at))
        self.cpu_s += time.thread_time() - began

    def problem(self) -> SoakFinding | None:
        """Why the run has to be ended now: it has not started in time, or has stalled."""
        at, settings = self.elapsed, self.settings
        if self.timing.first_tick is None:
            if at < settings.start_s:
                return None
            words = f"no tick within {settings.start_s:g} s of the start"
            return _stale("start", words)
        still = at - self.timing.moved
        if still < settings.stale_s:
            return None
        tick = self._last
        where = f" at iteration {tick.iteration}, {tick.env_steps} steps" if tick else ""
        return _stale("stall", f"no tick for {still:.1f} s{where} (limit {settings.stale_s:g} s)")

    def overrun(self) -> SoakFinding | None:
        """Why it has to be ended although it trains: it was asked to be over by now."""
        first, duration = self.timing.first_tick, self.settings.duration_s
        if first is None or duration is None:
            return None
        if self.elapsed - first < duration + self.settings.stale_s:
            return None
        return _stale("overrun", f"still trains {self.settings.stale_s:g} s after {duration:g} s")

    def _with_tick(self, sample: Sample, at: float) -> Sample:
        """The sample with what the run told of itself by now."""
        tick = self.watch.tick
        if tick is None:
            return sample
        steps, seconds = 0, 0.0
        if self._last is None:  # what a resumed run begins with is no tick of this soak
            self._mark, self._mark_at = tick, at
            self.timing = replace(self.timing, first_steps=tick.env_steps)
        elif tick != self._last:
            steps, seconds = self._moved(self._last, tick, at)
        self._last = tick
        if tick.learning and self.timing.learning is None:
            self.timing = replace(self.timing, learning=at)
        return replace(
            sample,
            iteration=min(tick.iteration, INT64_MAX),
            env_steps=min(tick.env_steps, INT64_MAX),
            steps=steps,
            seconds=seconds,
        )

    def _moved(self, last: Tick, tick: Tick, at: float) -> tuple[int, float]:
        """Note a change; environment steps since the last one, and the seconds they took."""
        again = _went_back(last.seconds, tick.seconds) or (
            last.status != _RUNNING and tick.status == _RUNNING
        )
        self.restarts += again
        ticked = (tick.iteration, tick.env_steps) != (last.iteration, last.env_steps)
        if ticked or tick.status != last.status:
            self.timing = replace(self.timing, moved=at)
        if ticked:
            first = at if self.timing.first_tick is None else self.timing.first_tick
            self.timing = replace(self.timing, first_tick=first, last_tick=at)
        mark, mark_at = self._mark, self._mark_at
        if not (ticked or again) or mark is None:
            return 0, 0.0
        self._mark, self._mark_at = tick, at
        steps = tick.env_steps - mark.env_steps
        if again or steps <= 0:
            return 0, 0.0
        return steps, _between(mark.seconds, tick.seconds) or at - mark_at


def _went_back(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _between(before: float | None, after: float | None) -> float | None:
    """Seconds by the run's own clock; None where that does not tell."""
    known = before is not None and after is not None and after > before
    return (after or 0.0) - (before or 0.0) if known else None


def _stale(rule: str, words: str) -> SoakFinding:
    return SoakFinding(rule=rule, classification=MonitorFailure.STALE_TICK, message=words)
