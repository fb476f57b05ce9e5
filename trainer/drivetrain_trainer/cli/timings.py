"""``drivetrain timings``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from drivetrain_trainer.cli.refusal import refusing

if TYPE_CHECKING:
    from drivetrain_trainer.analysis.stage_timings.reading import Report


@click.group(
    epilog="""\b
Examples:
  drivetrain timings report exports/sac/half_cheetah
"""
)
def timings() -> None:
    """Say how long the stages of experiments took, and on what hardware."""


@timings.command(
    epilog="""\b
Examples:
  drivetrain timings report exports/sac/half_cheetah
  drivetrain timings report exports/*/half_cheetah --by-hardware
  drivetrain timings report suites/pendulum-rates
  drivetrain timings report exports/sac/half_cheetah --plot stages.svg
  drivetrain timings report exports/sac/half_cheetah --json | jq '.directories[0].stages'
"""
)
@click.argument(
    "directories", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path)
)
@click.option("--by-hardware", is_flag=True, help="One table for each hardware.")
@click.option(
    "--plot",
    "figure",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw it as well: .png, .svg or .pdf.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def report(
    directories: tuple[Path, ...], *, by_hardware: bool, figure: Path | None, as_json: bool
) -> None:
    """Runs, total, mean and range of each stage, with its hardware.

    DIR is the artifact directory of an experiment, the folder with timings.json in it, or the
    root of a suite: then those of all members that its suite.json names. Memory sizes that
    historical files have of their own are shown as legacy, and never taken for those of this
    machine. Exits with 2 where a directory has no timings, or a file of them is torn, something
    else or of a later version.
    """
    from drivetrain_trainer.analysis.stage_timings import reading, tables  # noqa: PLC0415 - for --help's sake

    if figure is not None:
        _check(figure)
    with refusing(*reading.REFUSALS):
        found = reading.read(directories)
    show = tables.as_json if as_json else tables.as_text
    click.echo(show(found, by_hardware=by_hardware))
    if figure is not None:
        _draw(found, figure, by_hardware=by_hardware)
        click.echo(f"{figure}: {len(found.runs)} runs", err=True)


def _check(output: Path) -> None:
    """Refuse a figure that could not be drawn, before anything is read."""
    from drivetrain_trainer.analysis.plot import PlotError  # noqa: PLC0415 - imports NumPy
    from drivetrain_trainer.analysis.stage_timings import figure  # noqa: PLC0415 - likewise

    with refusing(PlotError):
        figure.check(output)


def _draw(found: Report, output: Path, *, by_hardware: bool) -> None:
    from drivetrain_trainer.analysis.plot import PlotError  # noqa: PLC0415 - imports NumPy
    from drivetrain_trainer.analysis.stage_timings import figure  # noqa: PLC0415 - likewise

    with refusing(PlotError, OSError):
        figure.render(found, output, by_hardware=by_hardware)
