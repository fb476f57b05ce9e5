"""``drivetrain compare``."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import click

from drivetrain_trainer.cli.refusal import refusing

_WIDEST = 100
"""Columns beyond which prose is hard to read."""
_REPORTS = (".html", ".htm")


def _per_task(
    _context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[float, ...]]:
    """``TASK=NUMBER[,NUMBER]`` by task; a number alone is of all tasks, under an empty name."""
    count = 2 if parameter.name == "references" else 1
    found = {}
    for text in values:
        task, _, rest = text.rpartition("=")
        try:
            numbers = tuple(float(part) for part in rest.split(","))
        except ValueError:
            numbers = ()
        needed = "TASK=LOW,HIGH" if count > 1 else "a number, or TASK=NUMBER"
        if (
            len(numbers) != count
            or not all(map(math.isfinite, numbers))
            or (count > 1 and not task)
        ):
            raise click.BadParameter(f"{text!r}: give {needed}")
        if count > 1 and numbers[0] >= numbers[1]:
            raise click.BadParameter(f"{text!r}: the lower return comes first")
        found[task] = numbers
    return found


@click.command(
    epilog="""\b
Examples:
  drivetrain compare suites/old suites/new
  drivetrain compare suites/learning-rates -o report.html
  drivetrain compare base=logs/sac/hopper new='runs/2026-11*' --threshold 2500
  drivetrain compare logs --group algo.batchSize --plot figures.svg
"""
)
@click.argument("sides", nargs=-1, required=True, metavar="[NAME=]PATH...")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a report for people: one .html file that needs nothing else.",
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the figures alone: .png, .svg or .pdf.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--metric",
    type=click.Choice(["auto", "evaluated", "training"]),
    default="auto",
    show_default=True,
    help="Score runs by evaluated return or training reward; auto takes the first where all "
    "runs of a task have it.",
)
@click.option(
    "--group",
    metavar="KEYS",
    help="Runs with equal values of these settings are one side, whatever argument they are of.",
)
@click.option(
    "--reference",
    "references",
    multiple=True,
    callback=_per_task,
    metavar="TASK=LOW,HIGH",
    help="Returns of a task that are scores of 0 and 1; may be repeated.",
)
@click.option(
    "--scale",
    type=click.Choice(["auto", "minmax", "raw"]),
    default="auto",
    show_default=True,
    help="Without references: minmax makes 0 of the least return that a run begins or ends with "
    "and 1 of the greatest final one, raw takes returns as they are; auto is raw for one task.",
)
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    callback=_per_task,
    metavar="[TASK=]RETURN",
    help="Count steps until a run first reports this; evaluator.target when unset.",
)
@click.option(
    "--last",
    type=click.FloatRange(0.0, 1.0),
    default=0.1,
    show_default=True,
    metavar="SHARE",
    help="A final return is the mean over this last share of the steps.",
)
@click.option("--unfinished", is_flag=True, help="Runs that are not complete take part as well.")
@click.option(
    "--repetitions",
    type=click.IntRange(100, 1_000_000),
    default=10_000,
    show_default=True,
    help="Resamplings of the bootstrap.",
)
@click.option(
    "--bootstrap-seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="The same seed gives the same intervals.",
)
def compare(
    sides: tuple[str, ...],
    *,
    output: Path | None,
    picture: Path | None,
    as_json: bool,
    metric: str,
    group: str | None,
    references: dict[str, tuple[float, float]],
    scale: str,
    thresholds: dict[str, tuple[float]],
    last: float,
    unfinished: bool,
    repetitions: int,
    bootstrap_seed: int,
) -> None:
    """Compare suites or runs: who is better, and how sure that is.

    PATH is a suite's root, an artifact directory, a run directory, a folder with some, or a
    quoted pattern; what lies below it is one side, called NAME. A suite's variants, and several
    algorithms, are sides of their own. Runs that failed or are not complete are listed and take
    no part. Exits with 2 where nothing can be compared.
    """
    # NumPy and matplotlib are imported once a command runs, never for --help.
    from drivetrain_trainer.analysis.comparison import command, scoring  # noqa: PLC0415
    from drivetrain_trainer.analysis.comparison.result import Options  # noqa: PLC0415

    if output is not None and output.suffix.lower() not in _REPORTS:
        raise click.BadParameter(f"{output}: the name must end with .html", param_hint="--output")
    options = Options(
        scoring=scoring.ScoringOptions(
            metric=None if metric == "auto" else scoring.Metric(metric),
            last_share=last,
            scaling=scoring.Scaling(scale),
            references=references,
            thresholds={task: value for task, (value,) in thresholds.items()},
        ),
        unfinished=unfinished,
        repetitions=repetitions,
        seed=bootstrap_seed,
    )
    width = min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
    with refusing(*command.REFUSALS, OSError):
        made = command.run(sides, group, options, output=output, picture=picture, tell=_tell)
        click.echo(made.as_json() if as_json else made.as_text(width))


def _tell(text: str) -> None:
    click.echo(text, err=True)
