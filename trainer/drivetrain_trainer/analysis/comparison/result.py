"""What a comparison found, in figures with their intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis.comparison import statistics
from drivetrain_trainer.analysis.comparison.scoring import ScoringOptions
from drivetrain_trainer.analysis.comparison.statistics import Estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from drivetrain_trainer.analysis.comparison.reading import ComparedRun
    from drivetrain_trainer.analysis.comparison.scoring import TaskScores
    from drivetrain_trainer.analysis.comparison.statistics import Line

    Floats = NDArray[np.float64]

GRID: Final = 101
"""Places of a curve."""


@dataclass(frozen=True)
class Options:
    """What the user decides."""

    scoring: ScoringOptions = field(default_factory=ScoringOptions)
    unfinished: bool = False
    """Runs that are not complete take part with what they have reported."""
    repetitions: int = statistics.REPETITIONS
    seed: int = 0
    """Of the resampling: the same seed gives the same intervals."""


@dataclass(frozen=True)
class Curve:
    """A side's interquartile mean over an axis."""

    x: Floats
    """(m,)."""
    line: Line


@dataclass(frozen=True)
class TaskSide:
    """A side on one task."""

    side: str
    runs: int
    final: Estimate
    """Interquartile mean of the runs' final returns, unscaled."""
    area: Estimate
    """The same of their mean returns."""
    reached: int
    """Runs that reached the threshold."""
    steps_to_threshold: float | None
    """Median over all runs, those that never did being infinite; None without a threshold."""
    over_steps: Curve
    """Return over environment steps, up to the budget."""
    over_time: Curve
    """Return over seconds since the first report, as far as all of its runs have come."""


@dataclass(frozen=True)
class TaskResult:
    """All sides on one task."""

    scores: TaskScores
    sides: tuple[TaskSide, ...]


@dataclass(frozen=True)
class SideResult:
    """A side over all tasks."""

    side: str
    runs: int
    fewest: int
    """Runs of the task that has the fewest."""
    final: Estimate
    """Interquartile mean of final scores."""
    area: Estimate
    """Interquartile mean of scores over training."""
    profile: Line
    """Share of runs above each of the profile's thresholds."""
    over_training: Curve
    """Score over the share of each task's steps, from 0 to 1."""


@dataclass(frozen=True)
class Pair:
    """Two sides against each other."""

    ours: str
    theirs: str
    improvement: Estimate
    """Probability that a run of `ours` ends above one of `theirs`."""
    difference: Estimate
    """Final interquartile mean of `ours` less that of `theirs`."""

    @property
    def turned(self) -> Pair:
        """The same, seen from the other side."""
        return Pair(
            self.theirs, self.ours, _turned(self.improvement, 1.0), _turned(self.difference)
        )


@dataclass(frozen=True)
class LeftOut:
    """A run that takes no part."""

    run: ComparedRun
    why: str
    """For a person."""


@dataclass(frozen=True)
class Comparison:
    """What was found."""

    sides: tuple[SideResult, ...]
    """In the order of the arguments."""
    pairs: tuple[Pair, ...]
    """Each two sides once, the one that more probably ends above the other first."""
    tasks: tuple[TaskResult, ...]
    thresholds: Floats
    """(m,) of the profiles."""
    runs: tuple[ComparedRun, ...]
    """Those that took part."""
    left_out: tuple[LeftOut, ...]
    """Those that did not."""
    notes: tuple[str, ...]
    """What a reader must know."""
    options: Options

    @property
    def scaled(self) -> bool:
        """Whether scores are on a common scale, or returns as they are."""
        return self.tasks[0].scores.scale is not None

    def side(self, name: str) -> SideResult:
        """A side by its name."""
        return next(one for one in self.sides if one.side == name)

    def pair(self, ours: str, theirs: str) -> Pair:
        """Two sides against each other, whichever way round they were compared."""
        for one in self.pairs:
            if (one.ours, one.theirs) == (ours, theirs):
                return one
            if (one.ours, one.theirs) == (theirs, ours):
                return one.turned
        raise KeyError((ours, theirs))


def _turned(estimate: Estimate, whole: float = 0.0) -> Estimate:
    """The estimate of what is left of the whole."""
    ends = estimate.interval
    turned = None if ends is None else statistics.Interval(whole - ends.high, whole - ends.low)
    return Estimate(whole - estimate.value, turned)
