"""The marks of a comparison's figures: a side's points, lines and bands, and their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis.comparison import words
from drivetrain_trainer.analysis.plot_style import LINES, STYLES, Drawing

if TYPE_CHECKING:
    import numpy as np

    from drivetrain_trainer.analysis.comparison.result import Comparison, Curve
    from drivetrain_trainer.analysis.comparison.statistics import Estimate

ROW: Final = 0.36
"""Inches that a side takes in a figure with a row a side."""
_COLUMNS: Final = 2
"""Of names in a legend."""
_NAME: Final = 28
"""Letters of a side's name in a figure."""
_NARROW: Final = 16
"""Letters up to which two names stand beside each other."""


def colour(place: int) -> str:
    """Colour of the side at that place."""
    return LINES[place % len(LINES)]


def style(place: int) -> str:
    """Dashes of the side at that place; with the colour they tell sides apart in grey as well."""
    lap, within = divmod(place, len(LINES))
    return STYLES[(within + lap) % len(STYLES)]


def short(name: str) -> str:
    """A side's name in a figure."""
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def curve(axes: Drawing, place: int, found: Curve, label: str) -> None:
    """A side's curve in its band."""
    line(axes, place, found.x, found.line.value, label)
    band(axes, place, found.x, found.line.low, found.line.high)


def point(
    axes: Drawing,
    place: int,
    found: Estimate,
    marker: str,
    *,
    ink: str | None = None,
    below: float = 0.0,
) -> None:
    """A side's estimate on a bar as long as its interval, `below` the middle of its row."""
    at, shade = place + below, ink or colour(place)
    if found.interval is not None:
        ends = [found.interval.low, found.interval.high]
        axes.plot(ends, [at, at], color=shade, linewidth=3, alpha=0.45, solid_capstyle="butt")
    axes.plot([found.value], [at], color=shade, marker=marker, markersize=6 - 6 * below)


def rows(axes: Drawing, names: list[str]) -> None:
    """One row for each name, the first on top."""
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_ylim(max(len(names), 2) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def line(axes: Drawing, place: int, x: np.ndarray, y: np.ndarray, label: str) -> None:
    """A side's line; `x` and `y` are (m,)."""
    axes.plot(x, y, color=colour(place), linestyle=style(place), linewidth=1.8, label=plain(label))


def plain(label: str) -> str:
    """A label that matplotlib shows as it is: no formula, and never hidden."""
    escaped = words.clean(label).replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def band(
    axes: Drawing, place: int, x: np.ndarray, low: np.ndarray | None, high: np.ndarray | None
) -> None:
    """What lies between (m,) ends, where there are some."""
    if low is not None and high is not None:
        axes.fill_between(x, low, high, color=colour(place), alpha=0.18, linewidth=0)


def legend(axes: Drawing, found: Comparison) -> None:
    """The sides' names over the figure, where there are several."""
    if len(found.sides) > 1:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=_legend_columns(found),
            fontsize="small",
            borderaxespad=0,
            handlelength=2.2,
        )


def _legend_columns(found: Comparison) -> int:
    return _COLUMNS if max(len(one.side) for one in found.sides) <= _NARROW else 1


def legend_height(found: Comparison) -> float:
    """Inches that the legend takes."""
    count = len(found.sides)
    return 0.0 if count == 1 else 0.2 * -(-count // _legend_columns(found))
