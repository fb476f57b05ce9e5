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
from drivetrain_trainer.soak.processor_time import NOTHING_USED, ProcessorTime
from drivetrain_trainer.soak.samples import Sample, SampleStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_api.artifacts.soak import SoakFigures
    from drivetrain_trainer.soak.settings import MonitorSettings
    from drivetrain_trainer.soak.summary import SummaryWatch, Tick

_RUNNING: Final = "running"
_MISSED_LOOKS: Final = 2
"""Intervals without a look after which it is no longer a matter of waiting for the next."""


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
    excused: float = 0.0
    """Seconds until then in which the run had work but no processor."""


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
        processor: Callable[[], ProcessorTime] = ProcessorTime,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin a soak now.

        Args:
            settings: Intervals and limits.
            sampler: Takes one sample of the run's processes.
            watch: Follows the run's summary.
            processor: What the run's processes got of the processors since it was last asked;
                nothing is excused without it.
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
        self._processor = processor
        self._used = NOTHING_USED
        self._excused = 0.0
        self._excused_when_due: float | None = None
        self._looked = 0.0
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
        self._account(self._processor(), at)
        self.watch.look()
        self.store.add(self._with_tick(sample, at))
        self.cpu_s += time.thread_time() - began

    def problem(self) -> SoakFinding | None:
        """Why the run has to be ended now: it has not started in time, or has stalled."""
        at, settings = self._seen_until(), self.settings
        if self.timing.first_tick is None:
            if at - self._excused < settings.start_s:
                return None
            words = f"no tick within {settings.start_s:g} s of the start{_waiting(self._excused)}"
            return _stale("start", words)
        still, excused = at - self.timing.moved, self._excused - self.timing.excused
        if still - excused < settings.stale_s:
            return None
        tick = self._last
        where = f" at iteration {tick.iteration}, {tick.env_steps} steps" if tick else ""
        limit = f"(limit {settings.stale_s:g} s)"
        return _stale("stall", f"no tick for {still:.1f} s{_waiting(excused)}{where} {limit}")

    def overrun(self) -> SoakFinding | None:
        """Why it has to be ended although it trains: it was asked to be over by now."""
        first, duration = self.timing.first_tick, self.settings.duration_s
        if first is None or duration is None:
            return None
        at = self.elapsed
        if at - first < duration:
            return None
        if self._excused_when_due is None:
            self._excused_when_due = self._excused
        excused = self._excused - self._excused_when_due
        if at - first - excused < duration + self.settings.stale_s:
            return None
        return _stale("overrun", f"still trains {self.settings.stale_s:g} s after {duration:g} s")

    def _account(self, used: ProcessorTime, at: float) -> None:
        """Excuse of the time since the last sample what the run waited for a processor."""
        seconds = at - self._looked
        self._looked = at
        self._used = self._used.then(used)
        self._excused += seconds - used.counted(seconds)

    def _seen_until(self) -> float:
        """When the run was last looked at: it may have moved since, unless looks fail."""
        at = self.elapsed
        return at if at - self._looked > _MISSED_LOOKS * self.settings.sample_s else self._looked

    def _with_tick(self, sample: Sample, at: float) -> Sample:
        """The sample with what the run told of itself by now."""
        tick = self.watch.tick
        if tick is None:
            return sample
        steps, seconds, used = 0, 0.0, self._used
        if self._last is None:  # what a resumed run begins with is no tick of this soak
            self._mark_here(tick, at)
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
            processor=used if steps else NOTHING_USED,
        )

    def _mark_here(self, tick: Tick, at: float) -> None:
        """Throughput is measured from here on."""
        self._mark, self._mark_at, self._used = tick, at, NOTHING_USED

    def _moved(self, last: Tick, tick: Tick, at: float) -> tuple[int, float]:
        """Note a change; environment steps since the last one, and the seconds they took."""
        again = _went_back(last.seconds, tick.seconds) or (
            last.status != _RUNNING and tick.status == _RUNNING
        )
        self.restarts += again
        ticked = (tick.iteration, tick.env_steps) != (last.iteration, last.env_steps)
        if ticked or tick.status != last.status:
            self.timing = replace(self.timing, moved=at, excused=self._excused)
        if ticked:
            first = at if self.timing.first_tick is None else self.timing.first_tick
            self.timing = replace(self.timing, first_tick=first, last_tick=at)
        mark, mark_at = self._mark, self._mark_at
        if not (ticked or again) or mark is None:
            return 0, 0.0
        self._mark_here(tick, at)
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


def _waiting(excused: float) -> str:
    return f", {excused:.1f} s of them spent waiting for a processor" if excused >= 1 else ""


def _stale(rule: str, words: str) -> SoakFinding:
    return SoakFinding(rule=rule, classification=MonitorFailure.STALE_TICK, message=words)
