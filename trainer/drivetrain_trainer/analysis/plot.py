"""Learning curves, throughput and timelines of runs, drawn by matplotlib without a display."""

from __future__ import annotations

import difflib
import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from drivetrain_api.atomic import write_bytes_atomically
from drivetrain_api.metrics import METRICS
from drivetrain_trainer.analysis import plot_curves, plot_timelines
from drivetrain_trainer.analysis.curves import Axis, Spread, without_warm_up
from drivetrain_trainer.analysis.plot_style import RC, Drawing
from drivetrain_trainer.analysis.runs import matches
from drivetrain_trainer.telemetry.timeline import (
    COLLECTOR_CYCLE,
    ITERATION_TIME,
    LEARNER_PHASES,
    ROLLOUT_TIME,
    TOTAL_FPS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from drivetrain_trainer.analysis.curves import Timeline
    from drivetrain_trainer.analysis.runs import Series

    Groups = Mapping[str, Sequence["PlottedRun"]]

DEFAULT_TAGS: Final = ("Train/mean_reward", "eval-rollout/reward", TOTAL_FPS)
"""Curves that are drawn without --tag, as far as a run has them."""
NEEDED: Final = (
    *DEFAULT_TAGS,
    "Train/iteration",
    ITERATION_TIME,
    ROLLOUT_TIME,
    *LEARNER_PHASES,
    *COLLECTOR_CYCLE,
)
"""Tags that a figure without --tag is made of."""
FORMATS: Final = (".png", ".svg", ".pdf")
MOST_PANELS: Final = 24
MOST_GROUPS: Final = 12
DOTS_PER_INCH: Final = 150
_COLUMNS: Final = 2
_PANEL_INCHES: Final = (5.6, 3.1)
_LEGEND: Final = 0.25
"""Height of a legend below a panel, of a panel's."""
_SPREADS: Final = {
    Spread.MINMAX: "mean, least to greatest",
    Spread.IQR: "median, quartiles",
    Spread.SD: "mean, one standard deviation",
    Spread.NONE: "mean",
}


class PlotError(ValueError):
    """A figure that cannot be drawn from these runs; the message says what to do."""


class MatplotlibMissingError(PlotError):
    """The extra with matplotlib is not installed."""


@dataclass(frozen=True)
class PlottedRun:
    """A run's series, and the group that it belongs to."""

    name: str
    """For messages."""
    group: str
    """Runs of one group become one curve with a band."""
    series: Mapping[str, Series]
    """Canonical tag -> series."""
    algo: str | None = None
    """Decides which phases are parts of the learner's iteration."""

    @property
    def start(self) -> float:
        """Wall time of the first report; 0 where there is none."""
        times = (float(one.wall_times[0]) for one in self.series.values() if len(one))
        return min(times, default=0.0)

    def has(self, tag: str) -> bool:
        """Whether the run has reported the tag."""
        return tag in self.series and bool(len(self.series[tag]))


@dataclass(frozen=True)
class Options:
    """What to draw and how."""

    tags: tuple[str, ...] = ()
    """Tags or patterns such as ``Loss/*``; `DEFAULT_TAGS` and the timelines when empty."""
    axis: Axis = Axis.ENV_STEPS
    smooth: int = 1
    """Reports of the trailing mean; 1 draws what was logged."""
    spread: Spread = Spread.MINMAX
    title: str | None = None
    """Above the figure; the group's name where there is one group."""


class _Panel(NamedTuple):
    """What is drawn on one pair of axes."""

    draw: Callable[[Drawing], None]
    wide: bool = False
    """Takes the whole width."""
    height: float = 1.0
    """Of the usual one: a legend below takes room."""


def check_format(output: Path) -> None:
    """Refuse a file name that no format goes with.

    Raises:
        PlotError: naming the formats.
    """
    if output.suffix.lower() not in FORMATS:
        raise PlotError(f"{output}: the name must end with {', '.join(FORMATS)}")


def check_matplotlib() -> None:
    """Refuse before runs are read, which may take long.

    Raises:
        MatplotlibMissingError: naming the extra.
    """
    try:
        import matplotlib  # noqa: F401, ICN001, PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise MatplotlibMissingError(
            "drawing needs matplotlib: pip install 'drivetrain[analysis]'"
        ) from error


def grouped(runs: Sequence[PlottedRun]) -> dict[str, list[PlottedRun]]:
    """Runs by their group, in the order given.

    Raises:
        PlotError: more groups than a figure can tell apart.
    """
    groups: dict[str, list[PlottedRun]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    if len(groups) > MOST_GROUPS:
        raise PlotError(
            f"{len(groups)} groups of runs; a figure tells at most {MOST_GROUPS} apart: "
            "name fewer runs, or group them by less"
        )
    return groups


def chosen_tags(runs: Sequence[PlottedRun], patterns: Sequence[str]) -> list[str]:
    """Tags that were asked for and that a run has, in the order asked.

    Raises:
        PlotError: a pattern fits nothing in any run, or a figure would be too large.
    """
    known = {tag: None for run in runs for tag in run.series if run.has(tag)}
    if not patterns:
        return [tag for tag in DEFAULT_TAGS if tag in known]
    found: dict[str, None] = {}
    for pattern in patterns:
        fitting = [tag for tag in known if matches(tag, (pattern,))]
        if not fitting:
            raise PlotError(f"no run has reported {pattern!r}: {_near(pattern, list(known))}")
        found.update(dict.fromkeys(fitting))
    if len(found) > MOST_PANELS:
        raise PlotError(f"{len(found)} tags; a figure holds {MOST_PANELS}: narrow --tag down")
    return list(found)


def _near(pattern: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(pattern, {*known, *METRICS}, n=3, cutoff=0.5)
    return f"did you mean {', '.join(near)}?" if near else "tags look like Train/mean_reward"


def render(runs: Sequence[PlottedRun], options: Options, output: Path) -> None:
    """Draw a figure into a file, which is replaced as a whole.

    Args:
        runs: What to draw; those of one group become one curve with a band.
        options: What and how.
        output: PNG, SVG or PDF by its suffix.

    Raises:
        PlotError: there is nothing to draw, too much, or no such format.
        MatplotlibMissingError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    check_format(output)
    check_matplotlib()
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to import

    if not options.tags:
        runs = [replace(run, series=without_warm_up(run.series)) for run in runs]
    groups = grouped(runs)
    panels = _panels(runs, groups, options)
    with mpl.rc_context(RC):
        made = _figure(panels, options.title or _title(groups, options))
        save(made, output)


def _panels(runs: Sequence[PlottedRun], groups: Groups, options: Options) -> list[_Panel]:
    panels = [_curve_panel(groups, tag, options) for tag in chosen_tags(runs, options.tags)]
    if not options.tags:
        if len(panels) > 1 and len(panels) % _COLUMNS:
            panels[-1] = panels[-1]._replace(wide=True)
        try:
            found = dict(plot_timelines.timelines(groups, options))
        except ValueError as error:
            raise PlotError(str(error)) from error
        for title, by_group in found.items():
            panels.append(_timeline_panel(title, by_group, groups, options.axis))
    if not panels:
        raise PlotError("the runs have reported nothing that is drawn by default; name a --tag")
    return panels


def _curve_panel(groups: Groups, tag: str, options: Options) -> _Panel:
    def draw(axes: Drawing) -> None:
        try:
            plot_curves.draw(axes, groups, tag, options)
        except ValueError as error:
            raise PlotError(str(error)) from error

    return _Panel(draw)


def _timeline_panel(
    title: str, by_group: Mapping[str, Timeline], groups: Groups, axis: Axis
) -> _Panel:
    if len(groups) > 1:
        height = 2 * _LEGEND + 0.09 * len(groups)
        return _Panel(
            lambda axes: plot_timelines.draw_bars(axes, by_group, title), wide=True, height=height
        )
    (only,) = by_group.values()
    return _Panel(
        lambda axes: plot_timelines.draw_areas(axes, only, title, axis), height=1.0 + _LEGEND
    )


def _title(groups: Groups, options: Options) -> str:
    if len(groups) > 1:
        spread = _SPREADS[options.spread]
        return f"Bands: {spread}" if any(len(runs) > 1 for runs in groups.values()) else ""
    ((name, runs),) = groups.items()
    return name if len(runs) == 1 else f"{name}: {len(runs)} runs ({_SPREADS[options.spread]})"


def _figure(panels: Sequence[_Panel], title: str) -> Drawing:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to import

    places = _places(panels)
    columns = min(len(panels), _COLUMNS)
    heights = [0.0] * (places[-1][0] + 1)
    for panel, (row, _) in zip(panels, places, strict=True):
        heights[row] = max(heights[row], panel.height)
    width, height = _PANEL_INCHES
    made = Figure(figsize=(width * columns, 0.4 + height * sum(heights)), layout="constrained")
    grid = made.add_gridspec(len(heights), columns, height_ratios=heights)
    for panel, (row, column) in zip(panels, places, strict=True):
        panel.draw(made.add_subplot(grid[row, :] if panel.wide else grid[row, column]))
    if title:
        made.suptitle(title, fontsize="large")
    return made


def _places(panels: Sequence[_Panel]) -> list[tuple[int, int]]:
    """Row and column of each panel, filled row by row."""
    places = []
    row = column = 0
    for panel in panels:
        if column and (panel.wide or column >= _COLUMNS):
            row, column = row + 1, 0
        places.append((row, column))
        column = _COLUMNS if panel.wide else column + 1
    return places


def save(made: Drawing, output: Path) -> None:
    """Write a figure in one step: a reader never sees half a picture."""
    suffix = output.suffix.lower()
    undated = {"Date": None} if suffix == ".svg" else None
    picture = io.BytesIO()
    made.savefig(picture, format=suffix.removeprefix("."), dpi=DOTS_PER_INCH, metadata=undated)
    write_bytes_atomically(output, picture.getvalue(), durable=False)
