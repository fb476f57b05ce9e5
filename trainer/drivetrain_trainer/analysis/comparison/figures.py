"""The figures of a comparison: each drawn once, for a file of its own and for the report."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from drivetrain_trainer.analysis.comparison import marks, words
from drivetrain_trainer.analysis.comparison.result import GRID
from drivetrain_trainer.analysis.curves import Axis
from drivetrain_trainer.analysis.plot import save as save_figure
from drivetrain_trainer.analysis.plot_style import RC, Drawing, finish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from drivetrain_trainer.analysis.comparison.result import Comparison, Curve, TaskResult

WIDTH, HEIGHT = 4.6, 2.9
"""Inches of a figure: its words stay legible on a telephone."""
MOST_PAIRS: Final = 15
"""More pairs are in the table alone."""
_COLUMNS: Final = 2
_REACH: Final = 0.75
"""Heights of a figure from its middle within which a threshold is drawn: no curve is squashed."""


@dataclass(frozen=True)
class Figure:
    """One figure, undrawn."""

    key: str
    title: str
    reading: str
    """How to read it, for its caption."""
    says: str
    """What it shows, for those who do not see it."""
    draw: Callable[[Drawing], None]
    height: float = HEIGHT
    """Inches."""


def figures(found: Comparison) -> list[Figure]:
    """All figures, in the order of the report."""
    made = [_scores(found)]
    if found.pairs:
        made.append(_improvement(found))
    made.append(_profile(found))
    if len(found.tasks) > 1:
        made.append(_training(found))
    for task in found.tasks:
        made += [_efficiency(found, task), _time(found, task)]
    return made


def _scores(found: Comparison) -> Figure:
    def draw(axes: Drawing) -> None:
        for place, one in enumerate(found.sides):
            marks.point(axes, place, one.final, "o")
            marks.point(axes, place, one.area, "D", below=0.22)
        marks.rows(axes, [marks.short(one.side) for one in found.sides])
        axes.set_xlabel(words.score_name(found) + " ● and mean over training ◆", loc="right")

    metric = "scores" if found.scaled else "returns"
    return Figure(
        key="scores",
        title="Interquartile mean",
        reading=(
            f"Circles: mean of the middle half of all final {metric}; diamonds: the same of their "
            "mean over training, which rewards learning early. Bars are 95 % stratified bootstrap "
            "intervals. Further right is better. Bars apart show a difference; where they overlap, "
            "the probability of improvement says more."
        ),
        says="; ".join(
            f"{one.side}: final {words.estimate(one.final)}, over training "
            f"{words.estimate(one.area)}"
            for one in found.sides
        ),
        draw=draw,
        height=1.0 + 1.3 * marks.ROW * max(len(found.sides), 2),
    )


def _improvement(found: Comparison) -> Figure:
    pairs = found.pairs[:MOST_PAIRS]

    def draw(axes: Drawing) -> None:
        axes.axvline(0.5, color="#808080", linewidth=1, linestyle=":")
        for place, pair in enumerate(pairs):
            marks.point(axes, place, pair.improvement, "o", ink="#000000")
        marks.rows(
            axes, [f"{marks.short(pair.ours)}\n> {marks.short(pair.theirs)}" for pair in pairs]
        )
        axes.set_xlim(-0.03, 1.03)
        axes.set_xlabel("probability of improvement")

    more = len(found.pairs) - len(pairs)
    return Figure(
        key="improvement",
        title="Probability of improvement",
        reading=(
            "How likely a run of the left side ends above one of the right side on the same task. "
            "At 0.5, dotted, neither is better; a bar that does not touch it tells a difference."
            + (f" {more} more pairs are in the data of --json." if more else "")
        ),
        says="; ".join(
            f"{pair.ours} above {pair.theirs}: {words.share(pair.improvement)}" for pair in pairs
        ),
        draw=draw,
        height=1.0 + 1.3 * marks.ROW * max(len(pairs), 2),
    )


def _profile(found: Comparison) -> Figure:
    def draw(axes: Drawing) -> None:
        for place, one in enumerate(found.sides):
            marks.line(axes, place, found.thresholds, one.profile.value, marks.short(one.side))
            marks.band(axes, place, found.thresholds, one.profile.low, one.profile.high)
        axes.set_ylim(-0.03, 1.03)
        axes.set_ylabel("share of runs above")
        axes.set_xlabel(words.score_name(found))
        marks.legend(axes, found)

    return Figure(
        key="profile",
        title="Performance profile",
        reading=(
            "Share of runs that end above a score. A line that is above another everywhere is "
            "better at every level; where lines cross, one side has the better best runs and the "
            "other the better worst ones. Where a line passes one half is the median."
        ),
        says="; ".join(
            f"half of the runs of {one.side} end above "
            f"{words.number(_crossing(found.thresholds, one.profile.value))}"
            for one in found.sides
        ),
        draw=draw,
        height=HEIGHT + marks.legend_height(found),
    )


def _crossing(thresholds: np.ndarray, value: np.ndarray) -> float:
    below = np.flatnonzero(value < 0.5)  # noqa: PLR2004 - a half
    return float(thresholds[below[0]]) if below.size else float(thresholds[-1])


def _training(found: Comparison) -> Figure:
    def draw(axes: Drawing) -> None:
        for place, one in enumerate(found.sides):
            marks.curve(axes, place, one.over_training, f"{marks.short(one.side)} ({one.runs})")
        axes.set_ylabel("score")
        axes.set_xlabel("share of a task's steps")
        marks.legend(axes, found)

    return Figure(
        key="training",
        title="All tasks over training",
        reading=(
            "Interquartile mean over the seeds of all tasks, with its 95 % bootstrap band. Higher "
            "sooner is better."
        ),
        says="; ".join(
            f"{one.side}: "
            f"{words.number(float(one.over_training.line.value[GRID // 2]))} halfway, "
            f"{words.number(float(one.over_training.line.value[-1]))} at the end"
            for one in found.sides
        ),
        draw=draw,
        height=HEIGHT + marks.legend_height(found),
    )


def _efficiency(found: Comparison, task: TaskResult) -> Figure:
    threshold = task.scores.threshold

    def draw(axes: Drawing) -> None:
        _curves(axes, found, task, lambda side: side.over_steps)
        low, high = axes.get_ylim()
        if threshold is not None and abs(threshold - (low + high) / 2) < _REACH * (high - low):
            axes.axhline(threshold, color="#808080", linewidth=1, linestyle=":")
        finish(axes, Axis.ENV_STEPS)

    return Figure(
        key=f"steps-{task.scores.task}",
        title=f"{task.scores.task}: {task.scores.metric.words} over steps",
        reading=(
            "Interquartile mean over the seeds with its 95 % bootstrap band. Higher sooner is "
            "better: it needs fewer steps of the environment."
            + (
                ""
                if threshold is None
                else f" Dotted if near: the threshold, {words.number(threshold)}."
            )
        ),
        says="; ".join(
            f"{one.side}: {words.number(float(one.over_steps.line.value[-1]))} after "
            f"{words.steps(task.scores.budget)} steps"
            for one in task.sides
        ),
        draw=draw,
        height=HEIGHT + marks.legend_height(found),
    )


def _time(found: Comparison, task: TaskResult) -> Figure:
    def draw(axes: Drawing) -> None:
        _curves(axes, found, task, lambda side: side.over_time)
        finish(axes, Axis.WALL)

    return Figure(
        key=f"time-{task.scores.task}",
        title=f"{task.scores.task}: {task.scores.metric.words} over time",
        reading=(
            "The same over the clock, from each run's first report, breaks between attempts "
            "included, as far as all seeds of a side have come. Times of different hardware are "
            "not to be compared: see below for what the runs ran on."
        ),
        says="; ".join(
            f"{one.side}: {words.number(float(one.over_time.line.value[-1]))} after "
            f"{float(one.over_time.x[-1]):,.0f} s"
            for one in task.sides
        ),
        draw=draw,
        height=HEIGHT + marks.legend_height(found),
    )


def _curves(axes: Drawing, found: Comparison, task: TaskResult, pick: Callable[..., Curve]) -> None:
    for place, one in enumerate(task.sides):
        marks.curve(axes, place, pick(one), f"{marks.short(one.side)} ({one.runs})")
    axes.set_ylabel(task.scores.metric.words)
    marks.legend(axes, found)


def as_svg(figure: Figure) -> str:
    """One figure as SVG, its words as text."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - as above

    with mpl.rc_context({**RC, "svg.hashsalt": f"drivetrain-{figure.key}"}):
        canvas = Canvas(figsize=(WIDTH, figure.height), layout="constrained")
        figure.draw(canvas.add_subplot())
        picture = io.BytesIO()
        canvas.savefig(picture, format="svg", transparent=True, metadata={"Date": None})
    return picture.getvalue().decode()


def save(found: Comparison, output: Path) -> None:
    """All figures in one file, two beside each other.

    Args:
        found: What is drawn.
        output: ``.png``, ``.svg`` or ``.pdf``; replaced as a whole.
    """
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - as above

    made = figures(found)
    rows = [made[at : at + _COLUMNS] for at in range(0, len(made), _COLUMNS)]
    heights = [max(one.height for one in row) + 0.25 for row in rows]
    with mpl.rc_context(RC):
        canvas = Canvas(figsize=(WIDTH * _COLUMNS, sum(heights)), layout="constrained")
        grid = canvas.add_gridspec(len(rows), _COLUMNS, height_ratios=heights)
        for row, of_row in enumerate(rows):
            for column, one in enumerate(of_row):
                axes = canvas.add_subplot(grid[row, column])
                one.draw(axes)
                legend = axes.get_legend() is not None
                pad = 6 + (72 * marks.legend_height(found) if legend else 0)
                axes.set_title(marks.plain(one.title), loc="left", fontsize="medium", pad=pad)
        save_figure(canvas, output)
