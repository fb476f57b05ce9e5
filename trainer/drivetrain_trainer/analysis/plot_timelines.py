"""Panels of the two clocks: areas over a run, or bars side by side for several groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from drivetrain_trainer.analysis import curves
from drivetrain_trainer.analysis.plot_style import HATCH, LIGHT, PHASES, WAITS, finish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from drivetrain_trainer.analysis.curves import Axis, Timeline
    from drivetrain_trainer.analysis.plot import Options, PlottedRun
    from drivetrain_trainer.analysis.plot_style import Drawing

_LEAST_SHARE: Final = 5e-4
"""Mean share from which a phase is drawn: it would round to 0.1 %."""
_LEAST_WRITTEN: Final = 4.0
"""Percent of a bar in which a number has room."""
_LABEL_POINTS: Final = 30.0
"""Height of the ticks and the label of an x axis."""
CLOCKS: Final[tuple[tuple[str, Callable[..., Timeline | None]], ...]] = (
    ("Learner, share of Iter Wall", curves.learner_timeline),
    ("Collector, share of its cycle", curves.collector_timeline),
)
"""Title, and what makes the timeline of a run."""


def timelines(
    groups: Mapping[str, Sequence[PlottedRun]], options: Options
) -> Iterator[tuple[str, dict[str, Timeline]]]:
    """Each clock that a group has: its title, and the mean timeline by group.

    Raises:
        ValueError: a run lacks what the axis needs.
    """
    for title, make in CLOCKS:
        found = {}
        for name, runs in groups.items():
            made = [make(run.series, options.axis, start=run.start, algo=run.algo) for run in runs]
            mean = curves.mean_timeline([one for one in made if one is not None])
            if mean is not None:
                found[name] = mean
        if found:
            yield title, found


def draw_areas(axes: Drawing, timeline: Timeline, title: str, axis: Axis) -> None:
    """Stacked shares over the run, each phase's mean in the legend."""
    means = timeline.shares.mean(axis=1)
    shown = [index for index, mean in enumerate(means) if mean >= _LEAST_SHARE]
    areas = axes.stackplot(
        timeline.x,
        100 * timeline.shares[shown],
        colors=[PHASES[timeline.labels[index]] for index in shown],
        linewidth=0.3,
        edgecolor="white",
    )
    for index, area in zip(shown, areas, strict=True):
        if timeline.labels[index] in WAITS:
            area.set_hatch(HATCH)
    labels = [f"{timeline.labels[index]} {100 * means[index]:.1f} %" for index in shown]
    _legend(axes, areas, labels)
    axes.set_ylim(0, max(100.0, 100 * float(timeline.shares.sum(axis=0).max())))
    axes.margins(x=0)
    axes.set_title(title, fontsize="medium")
    axes.set_ylabel("share [%]")
    finish(axes, axis)


def draw_bars(axes: Drawing, found: Mapping[str, Timeline], title: str) -> None:
    """A bar a group, of its shares over the whole run."""
    names = list(found)
    labels = dict.fromkeys(label for one in found.values() for label in one.labels)
    left = np.zeros(len(names))
    for label in labels:
        widths = np.array([100 * _mean_share(one, label) for one in found.values()])
        if widths.max() < 100 * _LEAST_SHARE:
            continue
        bars = axes.barh(
            names,
            widths,
            left=left,
            color=PHASES[label],
            edgecolor="white",
            hatch=HATCH if label in WAITS else None,
            label=label,
        )
        axes.bar_label(
            bars,
            labels=[f"{width:.0f}" if width >= _LEAST_WRITTEN else "" for width in widths],
            label_type="center",
            fontsize="x-small",
            color="black" if label in LIGHT else "white",
            fontweight="bold",
        )
        left += widths
    axes.invert_yaxis()
    axes.set_xlim(0, max(100.0, float(left.max())))
    axes.set_xlabel("share over the whole run [%]")
    axes.set_title(title, fontsize="medium")
    axes.grid(visible=False, axis="y")
    _legend(axes, *axes.get_legend_handles_labels())


def _mean_share(timeline: Timeline, label: str) -> float:
    if label not in timeline.labels:
        return 0.0
    return float(timeline.shares[timeline.labels.index(label)].mean())


def _legend(axes: Drawing, handles: Sequence[Drawing], labels: Sequence[str]) -> None:
    """Below the panel and its x label, where it hides nothing and takes no width."""
    from matplotlib.transforms import offset_copy  # noqa: PLC0415 - an extra, and slow to import

    axes.legend(
        handles,
        labels,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=offset_copy(axes.transAxes, axes.figure, y=-_LABEL_POINTS, units="points"),
        ncols=3,
        fontsize="small",
        handlelength=1.0,
        columnspacing=1.2,
    )
