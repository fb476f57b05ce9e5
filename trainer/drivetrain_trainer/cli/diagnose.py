"""``drivetrain diagnose``."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from drivetrain_trainer.cli.refusal import refusing

_WIDEST = 100
"""Columns beyond which prose is hard to read."""


@click.command(
    epilog="""\b
Examples:
  drivetrain diagnose logs/sac/half_cheetah
  drivetrain diagnose RUN --last 5m
  drivetrain diagnose RUN --last 200 --json
"""
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--last",
    default="30s",
    show_default=True,
    metavar="SPAN",
    help="How far back to look: seconds, minutes or hours (30s, 5m, 1h), or a number of reports.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def diagnose(run: Path, *, last: str, as_json: bool) -> None:
    """Say where a run's time goes, and what to check first.

    RUN is a run directory, or a folder: then the newest run below it is taken. Live, finished
    and killed runs are read alike. Exits with 2 where the run is refused, and with 0 whatever
    is found.
    """
    # NumPy is imported once a command runs, never for --help.
    from drivetrain_trainer.analysis import diagnosis_text, examination  # noqa: PLC0415
    from drivetrain_trainer.analysis.window import Span  # noqa: PLC0415

    try:
        span = Span.parse(last)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--last") from None
    with refusing(*examination.REFUSALS, OSError):
        found = examination.examine(run, span)
    if as_json:
        click.echo(diagnosis_text.as_json(found))
        return
    width = min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
    click.echo(diagnosis_text.as_text(found, width))
