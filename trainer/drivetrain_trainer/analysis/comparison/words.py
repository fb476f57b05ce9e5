"""What a comparison says: who is better, how sure that is, and what speaks against it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis.comparison.statistics import FEW_RUNS
from drivetrain_trainer.analysis.quantities import percent, span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drivetrain_trainer.analysis.comparison.result import Comparison, SideResult, TaskSide
    from drivetrain_trainer.analysis.comparison.statistics import Estimate

NO_VALUE: Final = "-"
_THOUSAND: Final = 1_000.0
_TEN: Final = 10.0
_MILLION: Final = 1_000_000.0


def clean(text: str) -> str:
    """Words that came with a run, without what a terminal or a page would take as a command."""
    shown = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in shown)


def number(value: float) -> str:
    """A return or score with three digits, or all before the point: 4,612, 87.3, 0.912."""
    if not math.isfinite(value):
        return NO_VALUE
    if abs(value) >= _THOUSAND - 0.5:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if value else "0"


def estimate(found: Estimate) -> str:
    """A figure with its interval, where it has one."""
    if found.interval is None:
        return number(found.value)
    return f"{number(found.value)} [{number(found.interval.low)}, {number(found.interval.high)}]"


def share(found: Estimate) -> str:
    """A probability with its interval in per cent."""
    value = percent(found.value)
    if found.interval is None:
        return value
    low, high = (f"{100 * end:.0f}" for end in (found.interval.low, found.interval.high))
    return f"{value} [{low}, {high}]"


def steps(value: float) -> str:
    """Environment steps: 41k, 1.25M."""
    if not math.isfinite(value):
        return "never"
    if value >= _MILLION:
        return f"{value / _MILLION:.3g}M"
    return f"{value / _THOUSAND:.3g}k" if value >= _THOUSAND else f"{value:.0f}"


def duration(seconds: float) -> str:
    """A time, with a digit more where it is short: 0.8 s, 4 min 20 s."""
    return f"{seconds:.2g} s" if seconds < _TEN else span(seconds)


def reached(side: TaskSide) -> str:
    """Median steps to the threshold, and how many runs got there."""
    if side.steps_to_threshold is None:
        return NO_VALUE
    return f"{steps(side.steps_to_threshold)} ({side.reached} of {side.runs})"


def score_name(found: Comparison) -> str:
    """What a final score is."""
    if found.scaled:
        return "final score"
    return f"final {found.tasks[0].scores.metric.words}"


def headline(found: Comparison) -> str:
    """One sentence: who is better, and how sure that is."""
    ranked = sorted(found.sides, key=lambda one: -one.final.value)
    best = ranked[0]
    name = f"interquartile mean of {score_name(found)}s"
    where = _listed(one.scores.task for one in found.tasks)
    if len(ranked) == 1:
        return f"{best.side} on {where}: {name} {estimate(best.final)}; a single side."
    second = ranked[1]
    pair = found.pair(best.side, second.side)
    among = "" if len(ranked) == 2 else ", the next best"  # noqa: PLR2004 - two need no ranking
    against = (
        f"{name} {estimate(best.final)} against {estimate(second.final)} of {second.side}{among}"
    )
    odds = f"a run of {best.side} ends above one of {second.side} in {share(pair.improvement)}"
    if pair.difference.interval is None:
        values = f"{number(best.final.value)} against {number(second.final.value)}"
        return (
            f"It cannot be told which is better on {where}: {_alone(best, second)}, so that "
            f"nothing is known of the spread ({best.side} has the higher {name}, {values} of "
            f"{second.side})."
        )
    if 0.0 in pair.difference.interval:
        return f"No difference can be told on {where}: {best.side} has {against}; {odds} of cases."
    few = min(best.fewest, second.fewest) < FEW_RUNS
    verdict = "seems better" if few else "is better"
    return f"{best.side} {verdict} on {where}: {against}; {odds} of cases."


def _alone(*sides: SideResult) -> str:
    names = [one.side for one in sides if one.fewest == 1]
    return f"{' and '.join(names)} {'have' if len(names) > 1 else 'has'} a single seed"


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def caveats(found: Comparison) -> list[str]:
    """What a reader must know before believing the headline."""
    return [*_few(found), *_missing(found), *found.notes]


def _few(found: Comparison) -> list[str]:
    single = [one.side for one in found.sides if one.fewest == 1]
    few = [one for one in found.sides if 1 < one.fewest < FEW_RUNS]
    told = []
    if single:
        told.append(
            f"One seed a task is all that {_listed(single)} "
            f"{'has' if len(single) == 1 else 'have'}: points without intervals."
        )
    if few:
        counts = _listed(f"{one.side} {one.fewest}" for one in few)
        told.append(
            f"Few seeds a task ({counts}): bootstrap intervals are too narrow then. Of one task, "
            "95 % intervals hold the true value in about 50, 75 and 90 of 100 cases with 2, 3 "
            "and 5 seeds."
        )
    return told


def _missing(found: Comparison) -> list[str]:
    told = []
    for side in (one.side for one in found.sides):
        count = sum(one.run.side == side and one.run.counted for one in found.left_out)
        total = count + sum(run.side == side for run in found.runs)
        if count:
            told.append(
                f"{count} of {total} runs of {side} {'takes' if count == 1 else 'take'} no part "
                "(reasons below): if they went badly, this side looks better than it is."
            )
    return told
