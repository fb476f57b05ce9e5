"""Samples of a soak, bounded in number: old ones are merged in pairs, never dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from drivetrain_api.artifacts.soak import SAMPLE_LIMIT, SoakFigures, SoakSample
from drivetrain_trainer.soak.processor_time import NOTHING_USED

if TYPE_CHECKING:
    from drivetrain_trainer.soak.processor_time import ProcessorTime

_LEAST_LIMIT: Final = 8


@dataclass(frozen=True)
class Sample:
    """One sample, or several in a row."""

    at: float
    """Seconds since the soak's start, of the last of them."""
    raw: int
    """Samples in it."""
    mean: SoakFigures
    peak: SoakFigures
    iteration: int | None = None
    env_steps: int | None = None
    steps: int = 0
    """Environment steps that were told of in these samples."""
    seconds: float = 0.0
    """Seconds that those steps took, by the run's own clock; 0 where none were told of."""
    processor: ProcessorTime = NOTHING_USED
    """What the run's processes got of the processors while they made those steps."""

    @classmethod
    def single(cls, at: float, figures: SoakFigures) -> Self:
        """A sample by itself, of a run that has told nothing yet."""
        return cls(at=at, raw=1, mean=figures, peak=figures)

    @property
    def rate(self) -> float | None:
        """Environment steps a second; None where none were told of."""
        return self.steps / self.seconds if self.seconds > 0 else None

    @property
    def undisturbed_rate(self) -> float | None:
        """The rate had every thread with work been given a processor; None where unknown."""
        if self.seconds <= 0 or self.processor.share is None:
            return None
        return self.steps / self.processor.counted(self.seconds)

    def then(self, later: Sample) -> Sample:
        """This and the next one as one: means weighted by their number, peaks kept."""
        return Sample(
            at=later.at,
            raw=self.raw + later.raw,
            mean=_mean(self, later),
            peak=_peak(self.peak, later.peak),
            iteration=self.iteration if later.iteration is None else later.iteration,
            env_steps=self.env_steps if later.env_steps is None else later.env_steps,
            steps=self.steps + later.steps,
            seconds=self.seconds + later.seconds,
            processor=self.processor.then(later.processor),
        )

    def record(self) -> SoakSample:
        """As it stands in the artifact."""
        return SoakSample(
            at_s=self.at,
            raw_samples=self.raw,
            mean=self.mean,
            peak=self.peak,
            iteration=self.iteration,
            env_steps=self.env_steps,
            env_steps_per_sec=self.rate,
            processor_share=self.processor.share,
        )


def _mean(first: Sample, second: Sample) -> SoakFigures:
    weight = first.raw + second.raw
    merged = {}
    for name in SoakFigures.model_fields:
        a, b = getattr(first.mean, name), getattr(second.mean, name)
        if a is None or b is None:
            merged[name] = b if a is None else a
        else:
            merged[name] = round((a * first.raw + b * second.raw) / weight)
    return SoakFigures(**merged)


def _peak(first: SoakFigures, second: SoakFigures) -> SoakFigures:
    merged = {}
    for name in SoakFigures.model_fields:
        a, b = getattr(first, name), getattr(second, name)
        merged[name] = (b if a is None else a) if a is None or b is None else max(a, b)
    return SoakFigures(**merged)


class SampleStore:
    """At most `limit` samples, whatever the soak's length.

    Once full, neighbours are merged in pairs, and from then on twice as many raw samples make
    one: a soak of any length keeps an even resolution from its start to its end.
    """

    def __init__(self, limit: int = SAMPLE_LIMIT) -> None:
        if limit < _LEAST_LIMIT or limit % 2:
            raise ValueError(f"limit must be even and at least {_LEAST_LIMIT}; got {limit}")
        self._limit = limit
        self._stride = 1
        self._kept: list[Sample] = []
        self._pending: Sample | None = None
        self.raw = 0
        """Samples that were added."""

    def add(self, sample: Sample) -> None:
        """Keep one more sample."""
        self.raw += sample.raw
        self._pending = sample if self._pending is None else self._pending.then(sample)
        if self._pending.raw < self._stride:
            return
        self._kept.append(self._pending)
        self._pending = None
        if len(self._kept) == self._limit:
            pairs = zip(self._kept[::2], self._kept[1::2], strict=True)
            self._kept = [first.then(second) for first, second in pairs]
            self._stride *= 2

    @property
    def samples(self) -> list[Sample]:
        """What is kept, oldest first; the last may still grow."""
        return [*self._kept, *([self._pending] if self._pending is not None else [])]
