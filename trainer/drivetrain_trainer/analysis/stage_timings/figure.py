"""The report as a figure: a dot for each run, a bar for their mean."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis.plot import PlotError, check_format, check_matplotlib, save
from drivetrain_trainer.analysis.plot_style import LINES, RC, Drawing
from drivetrain_trainer.analysis.stage_timings import words
from drivetrain_trainer.analysis.stage_timings.tables import duration, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from drivetrain_trainer.analysis.stage_timings.reading import Report, TimedRun

MOST_ROWS: Final = 80
_ROW_INCHES: Final = 0.26
_WIDTH_INCHES: Final = 8.0
_LABEL: Final = 100
"""Characters that fit into the figure's width."""
_WIDE_RANGE: Final = 30.0
"""Longest over shortest from which on the axis is logarithmic."""
_TICKS: Final = (
    *((seconds, f"{seconds * 1000:g} ms") for seconds in (0.001, 0.01, 0.1)),
    *((seconds, f"{seconds:g} s") for seconds in (1.0, 10.0)),
    *((60.0 * minutes, f"{minutes} min") for minutes in (1, 10)),
    *((3600.0 * hours, f"{hours} h") for hours in (1, 10, 100)),
)
"""Of a logarithmic axis."""
_LEAST: Final = 1e-4
"""Where a stage of no time at all is drawn on a logarithmic axis."""


def check(output: Path) -> None:
    """Refuse a figure before anything is read.

    Raises:
        PlotError: no such format, or matplotlib is not installed.
    """
    check_format(output)
    check_matplotlib()


def render(report: Report, output: Path, *, by_hardware: bool = False) -> None:
    """Draw the report into a file, which is replaced as a whole.

    Args:
        report: What was read.
        output: PNG, SVG or PDF by its suffix.
        by_hardware: Colours tell hardware apart, and not directories.

    Raises:
        PlotError: there is nothing to draw, or too much for one figure.
        OSError: the file cannot be written.
    """
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415 - likewise

    keys: tuple[Callable[[TimedRun], str], ...] = (
        lambda run: str(run.directory),
        lambda run: _hardware_label(run, report),
    )
    rows = [
        (stage, key, of_key)
        for stage, measured in grouped(report.runs, lambda run: run.stage)
        for key, of_key in grouped(measured, keys[by_hardware])
    ]
    if not rows:
        raise PlotError("no stage has been recorded yet: nothing to draw")
    if len(rows) > MOST_ROWS:
        raise PlotError(f"{len(rows)} rows; a figure holds {MOST_ROWS}: name fewer directories")
    with mpl.rc_context({**RC, "axes.grid.axis": "x"}):
        height = 1.1 + _ROW_INCHES * len(rows)
        made = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
        _draw(made.add_subplot(), rows)
        save(made, output)


def _hardware_label(run: TimedRun, report: Report) -> str:
    described = words.described(run.hardware, report.descriptions)
    return textwrap.shorten(f"{words.short(run.hardware)}: {described}", _LABEL, placeholder=" …")


def _draw(axes: Drawing, rows: Sequence[tuple[str, str, Sequence[TimedRun]]]) -> None:
    keys = list(dict.fromkeys(key for _, key, _ in rows))
    seen: set[str] = set()
    for place, (_, key, runs) in enumerate(rows):
        seconds = [max(run.run.seconds, _LEAST) for run in runs]
        mean, color = sum(seconds) / len(seconds), LINES[keys.index(key) % len(LINES)]
        axes.plot(seconds, [place] * len(seconds), "o", color=color, alpha=0.6, markersize=4)
        label = None if key in seen else key
        axes.plot([mean], [place], "|", color=color, markersize=13, markeredgewidth=2, label=label)
        words_of = duration(mean) if len(runs) == 1 else f"{duration(mean)}, {len(runs)} runs"
        axes.annotate(
            words_of, (max(seconds), place), (7, 0), textcoords="offset points", va="center"
        )
        seen.add(key)
    stages = [stage for stage, _, _ in rows]
    labels = [stage if stage not in stages[:place] else "" for place, stage in enumerate(stages)]
    axes.set_yticks(range(len(rows)), labels)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    _time_axis(axes, [run.run.seconds for _, _, runs in rows for run in runs])
    if len(keys) > 1:
        axes.figure.legend(loc="outside lower center", ncols=1)


def _time_axis(axes: Drawing, seconds: Sequence[float]) -> None:
    least, greatest = max(min(seconds), _LEAST), max(*seconds, _LEAST)
    axes.set_xlabel("duration of a run (dots) and their mean (bars)")
    if greatest / least < _WIDE_RANGE:
        axes.set_xlim(0.0, greatest * 1.35)
        axes.xaxis.set_major_formatter(lambda value, _: duration(value) if value else "0")
        return
    axes.set_xscale("log")
    axes.set_xlim(least / 2, greatest * 12)
    fitting = [(place, name) for place, name in _TICKS if least / 2 <= place <= greatest * 12]
    axes.set_xticks([place for place, _ in fitting], [name for _, name in fitting])
    axes.minorticks_off()
