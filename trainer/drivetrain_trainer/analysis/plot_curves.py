"""A panel of one tag: a line a run, or a band over several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis import curves
from drivetrain_trainer.analysis.plot_style import LINES, STYLES, finish, label_of
from drivetrain_trainer.analysis.window import ITERATION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drivetrain_trainer.analysis.curves import Curve
    from drivetrain_trainer.analysis.plot import Options, PlottedRun
    from drivetrain_trainer.analysis.plot_style import Drawing

_FEW_POINTS: Final = 30
"""Up to so many points each is marked."""


@dataclass(frozen=True)
class _Pen:
    """How a group is drawn: colour and dashes both tell it from the others."""

    color: str
    style: str
    label: str

    @classmethod
    def of(cls, index: int, label: str) -> _Pen:
        """The pen of the group at that place."""
        lap, color = divmod(index, len(LINES))
        return cls(LINES[color], STYLES[(color + lap) % len(STYLES)], label)


def draw(
    axes: Drawing,
    groups: Mapping[str, Sequence[PlottedRun]],
    tag: str,
    options: Options,
) -> None:
    """Draw a tag of all groups.

    Raises:
        ValueError: a run lacks what the axis needs.
    """
    for index, (name, runs) in enumerate(groups.items()):
        found = [_curve(run, tag, options) for run in runs if run.has(tag)]
        if found:
            label = name if len(runs) == 1 else f"{name} ({len(found)} runs)"
            _group(axes, found, options, _Pen.of(index, label))
    if len(groups) > 1:
        axes.legend(fontsize="small")
    axes.set_ylabel(label_of(tag))
    if tag.startswith("Perf/"):
        axes.set_ylim(bottom=0)
    finish(axes, options.axis)


def _curve(run: PlottedRun, tag: str, options: Options) -> Curve:
    try:
        return curves.curve(
            run.series[tag],
            options.axis,
            iterations=run.series.get(ITERATION),
            start=run.start,
        )
    except ValueError as error:
        raise ValueError(f"{run.name}: {error}") from error


def _group(axes: Drawing, found: Sequence[Curve], options: Options, pen: _Pen) -> None:
    shown = [curves.Curve(one.x, curves.smoothed(one.y, options.smooth)) for one in found]
    band = curves.band(shown, options.spread) if len(shown) > 1 else None
    if band is not None:
        _band(axes, band, pen)
        _beyond(axes, shown, float(band.x[-1]), pen)
    elif len(shown) == 1:
        if options.smooth > 1:
            axes.plot(found[0].x, found[0].y, color=pen.color, alpha=0.25, linewidth=0.8)
        _line(axes, shown[0], pen)
    else:
        _beyond(axes, shown, float("-inf"), pen)
        axes.plot([], [], color=pen.color, linestyle=pen.style, label=pen.label)


def _line(axes: Drawing, one: Curve, pen: _Pen) -> None:
    axes.plot(
        one.x,
        one.y,
        color=pen.color,
        linestyle=pen.style,
        linewidth=1.6,
        marker="o" if one.x.size <= _FEW_POINTS else None,
        markersize=3,
        label=pen.label,
    )


def _band(axes: Drawing, band: curves.Band, pen: _Pen) -> None:
    axes.fill_between(band.x, band.low, band.high, color=pen.color, alpha=0.2, linewidth=0)
    axes.plot(
        band.x, band.middle, color=pen.color, linestyle=pen.style, linewidth=1.6, label=pen.label
    )


def _beyond(axes: Drawing, shown: Sequence[Curve], end: float, pen: _Pen) -> None:
    """Each run's own line, thin, where not all of the group are any more."""
    for one in shown:
        rest = one.x >= end
        if rest.sum() > 1:
            axes.plot(
                one.x[rest],
                one.y[rest],
                color=pen.color,
                linestyle=pen.style,
                linewidth=0.6,
                alpha=0.7,
            )
