"""Colours, marks and axes that every panel has in common."""

from __future__ import annotations

from typing import Any, Final

from drivetrain_api.metrics import METRICS, MetricSchema, Unit, UnknownMetricError
from drivetrain_trainer.analysis.curves import Axis

Drawing = Any
"""A matplotlib object: it has no types."""

_BLUE, _VERMILLION, _GREEN, _ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
_PURPLE, _SKY, _YELLOW = "#CC79A7", "#56B4E9", "#F0E442"
_GREY, _LIGHT = "#7F7F7F", "#D9D9D9"
LINES: Final = (_BLUE, _VERMILLION, _GREEN, _ORANGE, _PURPLE, _SKY, "#000000")
"""Okabe and Ito's palette, which the colour-blind tell apart; its yellow is too light for lines."""
STYLES: Final = ("-", "--", "-.", ":")
PHASES: Final = {
    "Rollout Wall": _PURPLE,
    "Collector Wait": _VERMILLION,
    "Inference": _SKY,
    "Collector Release": _PURPLE,
    "Replay Batch Wait": _ORANGE,
    "Replay Stage": _YELLOW,
    "Replay Sample": _GREEN,
    "Learning": _BLUE,
    "Weight Publish": _GREY,
    "Other": _LIGHT,
    "Inference Request": _SKY,
    "Learner Action Wait": _VERMILLION,
    "Env Step": _BLUE,
    "Transition Extract": _PURPLE,
    "Replay Write": _GREEN,
    "Metrics Publish": _YELLOW,
}
"""A phase has one colour in every figure; waiting is vermillion."""
WAITS: Final = frozenset({"Collector Wait", "Replay Batch Wait", "Learner Action Wait"})
"""Phases that are hatched, so that waiting shows in a print in grey as well."""
HATCH: Final = "////"
LIGHT: Final = frozenset(name for name, color in PHASES.items() if color in {_LIGHT, _YELLOW})
"""Phases on whose colour white cannot be read."""
_AXES: Final = {Axis.ENV_STEPS: "environment steps", Axis.ITERATIONS: "learner iterations"}
_TIMES: Final = ((7200.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""From so many seconds on, so many of them are one of these."""
_FIVE_DIGITS: Final = 10_000
_LABELS: Final = {
    "Train/mean_reward": "Mean Reward, last 100 episodes",
    "eval-rollout/reward": "Evaluated Return",
}
"""Words for tags whose own label says too little in a figure."""
RC: Final = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.alpha": 0.3,
    "hatch.linewidth": 0.4,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "drivetrain",
}
"""Of matplotlib, for one figure; an SVG is the same from the same runs, and its words are text."""


def label_of(tag: str) -> str:
    """Name of a tag with its unit in brackets."""
    if tag in _LABELS:
        return _LABELS[tag]
    try:
        metric = METRICS.get(tag) or MetricSchema().lookup(tag)
    except UnknownMetricError:
        return tag
    plain = metric.unit in {Unit.NONE, Unit.RETURN} or str(metric.unit) == metric.label.lower()
    return metric.label if plain else f"{metric.label} [{metric.unit}]"


def finish(axes: Drawing, axis: Axis) -> None:
    """Name the x axis, and write numbers as a person would: 20k, minutes, no exponents."""
    from matplotlib.ticker import EngFormatter  # noqa: PLC0415 - an extra, and slow to import

    if axis is Axis.WALL:
        _time_ticks(axes)
    else:
        axes.set_xlabel(_AXES[axis])
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    if max(map(abs, axes.get_ylim())) >= _FIVE_DIGITS:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def _time_ticks(axes: Drawing) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - an extra, and slow to import

    low, high = axes.get_xlim()
    size, name = next((size, name) for least, size, name in _TIMES if high - low >= least)
    ticks = [
        tick
        for tick in MaxNLocator(7, steps=[1, 2, 5, 10]).tick_values(low / size, high / size)
        if low <= tick * size <= high
    ]
    axes.set_xticks([tick * size for tick in ticks], [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(f"{name} since the first report")
