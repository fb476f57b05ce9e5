"""The report for people: one HTML file with everything in it."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Final

from drivetrain_api import __version__
from drivetrain_api.atomic import write_text_atomically
from drivetrain_trainer.analysis.comparison import words
from drivetrain_trainer.analysis.comparison.figures import as_svg, figures
from drivetrain_trainer.analysis.comparison.marks import colour
from drivetrain_trainer.analysis.comparison.markup import (
    Markup,
    element,
    inline_svg,
    joined,
    table,
)
from drivetrain_trainer.analysis.quantities import percent

if TYPE_CHECKING:
    from pathlib import Path

    from drivetrain_trainer.analysis.comparison.circumstances import Circumstances
    from drivetrain_trainer.analysis.comparison.figures import Figure
    from drivetrain_trainer.analysis.comparison.reading import ComparedRun
    from drivetrain_trainer.analysis.comparison.result import Comparison

_STYLE: Final = "report.css"
_NUMBER: Final = "n"
_IDENTIFIER: Final = re.compile(r"[^A-Za-z0-9]+")


def save(found: Comparison, around: Circumstances, output: Path) -> None:
    """Write the report; the file is replaced as a whole.

    Raises:
        OSError: it cannot be written.
    """
    write_text_atomically(output, as_html(found, around), durable=False)


def as_html(found: Comparison, around: Circumstances) -> str:
    """The report: the same for the same runs and options, byte by byte."""
    title = " against ".join(one.side for one in found.sides)
    style = resources.files(__package__).joinpath(_STYLE).read_text(encoding="utf-8")
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", f"Comparison: {title}"),
        element("style", Markup(style)),
    )
    body = element(
        "body",
        element(
            "header",
            element("h1", f"Comparison: {title}"),
            element("p", words.headline(found), class_="headline"),
            _caveats([*words.caveats(found), *around.notes]),
        ),
        element("main", *_sections(found, around)),
        element("footer", element("p", f"Made by drivetrain compare, version {__version__}.")),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _caveats(told: list[str]) -> Markup:
    if not told:
        return Markup()
    listed = element("ul", *(element("li", one) for one in told))
    return element("section", element("h2", "Before you believe it"), listed, class_="caveats")


def _sections(found: Comparison, around: Circumstances) -> list[Markup]:
    drawn = figures(found)
    parts = [
        _section("Figures", element("div", *(_figure(one) for one in drawn), class_="figures")),
        _section("Scores", *_scores(found)),
        _section("Time and hardware", *_times(found, around)),
        _section("Settings and versions", *_settings(found, around)),
        _section("Runs", *_runs(found)),
        _section("How it was computed", _method(found)),
    ]
    return [part for part in parts if part]


def _section(title: str, *content: Markup) -> Markup:
    if not any(content):
        return Markup()
    return element("section", element("h2", title), *content)


def _figure(one: Figure) -> Markup:
    key = f"f-{_IDENTIFIER.sub('-', one.key)}"
    return element(
        "figure",
        element("h3", one.title),
        inline_svg(as_svg(one), key=key, title=one.title, description=one.says),
        element("figcaption", one.reading),
    )


def _named(found: Comparison, side: str) -> Markup:
    """A side with its colour, where it takes part."""
    names = [one.side for one in found.sides]
    if side not in names:
        return joined([side])
    dot = element("span", class_="key", style=f"background:{colour(names.index(side))}")
    return joined([dot, side])


def _scores(found: Comparison) -> list[Markup]:
    overall = len(found.tasks) > 1 or found.scaled
    return [
        *([_overall(found)] if overall else []),
        *(_task(found, place) for place in range(len(found.tasks))),
        *([_pairs(found)] if found.pairs else []),
    ]


def _overall(found: Comparison) -> Markup:
    rows = [
        (
            _named(found, one.side),
            str(one.runs),
            words.estimate(one.final),
            words.estimate(one.area),
        )
        for one in found.sides
    ]
    head = ("Side", "Runs", "Final IQM [95 %]", "Over training [95 %]")
    return table("All tasks, scaled scores", head, rows, (None, *[_NUMBER] * 3))


def _pairs(found: Comparison) -> Markup:
    rows = [
        (
            joined([_named(found, one.ours), " above ", _named(found, one.theirs)]),
            words.share(one.improvement),
            words.estimate(one.difference),
        )
        for one in found.pairs
    ]
    head = ("Pair", "Probability of improvement [95 %]", "Difference of final IQM [95 %]")
    return table("Side against side", head, rows, (None, _NUMBER, _NUMBER))


def _task(found: Comparison, place: int) -> Markup:
    task = found.tasks[place]
    scores = task.scores
    title = f"{scores.task}: {scores.metric.words} at {words.steps(scores.budget)} steps"
    if scores.scale is not None:
        low, high = words.number(scores.scale.low), words.number(scores.scale.high)
        title += f" (score 0 is {low}, 1 is {high})"
    head = ["Side", "Runs", "Final IQM [95 %]", "Over training [95 %]"]
    rows = [
        [
            _named(found, one.side),
            str(one.runs),
            words.estimate(one.final),
            words.estimate(one.area),
        ]
        for one in task.sides
    ]
    if scores.threshold is not None:
        head.append(f"Steps to {words.number(scores.threshold)}, median (runs)")
        for row, one in zip(rows, task.sides, strict=True):
            row.append(words.reached(one))
    return table(title, head, rows, (None, *[_NUMBER] * (len(head) - 1)))


def _times(found: Comparison, around: Circumstances) -> list[Markup]:
    rows = [
        (
            _named(found, one.side),
            one.stage,
            str(one.runs),
            words.duration(one.mean_seconds),
            words.duration(one.total_seconds),
            one.hardware,
        )
        for one in around.times
    ]
    head = ("Side", "Stage", "Runs", "Mean", "Sum", "Hardware")
    kinds = (None, None, _NUMBER, _NUMBER, _NUMBER, "line")
    return [table("Wall time of stages", head, rows, kinds)] if rows else []


def _settings(found: Comparison, around: Circumstances) -> list[Markup]:
    names = [_named(found, one.side) for one in found.sides]
    kinds = (None, *["why"] * len(names))
    made = []
    for title, differences in (
        ("Settings that differ", around.settings),
        ("Versions that differ", around.versions),
    ):
        rows = [(one.name, *one.values) for one in differences]
        if rows:
            made.append(table(title, (title, *names), rows, kinds))
        else:
            made.append(element("p", f"{title}: none."))
    shared = ", ".join(f"{name} {version}" for name, version in around.common_versions.items())
    return [*made, element("p", f"The same for all runs: {shared}.")] if shared else made


def _runs(found: Comparison) -> list[Markup]:
    finals = {
        run.path: value
        for task in found.tasks
        for side, runs in task.scores.runs.items()
        for run, value in zip(runs, task.scores.final[side].tolist(), strict=True)
    }
    taking = table(
        "Runs that take part",
        ("Side", "Task", "Seed", "Final return", "Status", "Run"),
        [
            _run(found, run, words.number(finals[run.path]), run.standing.value)
            for run in found.runs
        ],
        (None, None, _NUMBER, _NUMBER, None, "path"),
    )
    if not found.left_out:
        return [taking]
    rows = [_run(found, one.run, one.why) for one in found.left_out]
    head = ("Side", "Task", "Seed", "Why", "Run")
    kinds = (None, None, _NUMBER, "why", "path")
    return [table("Runs that take no part", head, rows, kinds), taking]


def _run(found: Comparison, run: ComparedRun, *cells: str) -> tuple[str, ...]:
    seed = words.NO_VALUE if run.seed is None else str(run.seed)
    return (_named(found, run.side), run.task, seed, *cells, str(run.path))


def _method(found: Comparison) -> Markup:
    options = found.options
    return element(
        "p",
        f"A final return is the mean of a run's curve over the last "
        f"{percent(options.scoring.last_share)} of the steps that all runs of the task have; over "
        "training, the mean over all of them. IQM is the interquartile mean: of all runs, tasks "
        "weighing alike, the quarter with the lowest scores and the quarter with the highest are "
        f"left out. Brackets hold 95 % percentile intervals of {options.repetitions:,} stratified "
        f"bootstrap resamplings with seed {options.seed}: runs are drawn anew within each task. "
        "After Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical "
        "Precipice, NeurIPS 2021, section 4.",
        class_="method",
    )
