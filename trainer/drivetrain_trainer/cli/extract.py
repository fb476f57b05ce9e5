"""``drivetrain extract``."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drivetrain_api.algorithms import AlgoName
from drivetrain_trainer.cli.refusal import Refusal, refusing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FORMATS = ("csv", "json", "parquet")


EXAMPLES = """\b
Examples:
  drivetrain extract logs/sac/half_cheetah/2026-11-29_18-30-00_mujoco
  drivetrain extract RUN --tag 'Train/*' --tag Perf/total_fps -o curves.csv
  drivetrain extract OLD --legacy-unversioned --algo appo --format parquet
"""


@click.command(epilog=EXAMPLES)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), default="csv", show_default=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The table.  [default: metrics.FORMAT in the run directory]",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="GLOB",
    help="Only tags that fit, such as 'Train/*'; may be given several times.",
)
@click.option(
    "--legacy-unversioned",
    is_flag=True,
    help="Read a log from before the metric schema, by its retired tags.",
)
@click.option(
    "--algo",
    type=click.Choice([name.value for name in AlgoName]),
    help="Algorithm of a legacy run whose files do not say it.",
)
def extract(
    run: Path,
    *,
    form: str,
    output: Path | None,
    tags: tuple[str, ...],
    legacy_unversioned: bool,
    algo: str | None,
) -> None:
    """Write the metrics of a run as CSV, JSON or Parquet.

    RUN is the directory of a live, finished or killed run. The table has a row a step with
    columns step, wall_time and one for each tag. Only metrics of the schema version that
    run_summary.json states are read; anything else is refused and nothing is written.
    """
    if algo is not None and not legacy_unversioned:
        raise click.UsageError("--algo goes with --legacy-unversioned alone")
    # NumPy is imported once a command runs, never for --help.
    from drivetrain_trainer.analysis import extract as extracting  # noqa: PLC0415
    from drivetrain_trainer.analysis.formats import Format  # noqa: PLC0415
    from drivetrain_trainer.analysis.runs import RunFolder  # noqa: PLC0415

    legacy = extracting.LegacyMode(AlgoName(algo) if algo else None) if legacy_unversioned else None
    with refusing(*extracting.REFUSALS), _os_errors():
        folder = RunFolder.open(run)
        with _bar(folder.bytes_to_read) as advance:
            done = extracting.extract(
                folder, output, Format(form), patterns=tags, legacy=legacy, progress=advance
            )
    for note in done.notes:
        click.echo(note, err=True)
    click.echo(f"{done.output}: {done.rows:,} rows, {len(done.tags)} tags")


@contextmanager
def _bar(size: int) -> Iterator[Callable[[int], None] | None]:
    """A progress bar where a person watches and it takes more than a moment."""
    if not sys.stderr.isatty() or size < 1 << 24:
        yield None
        return
    with click.progressbar(length=2 * size, label="reading", file=sys.stderr) as bar:
        yield bar.update


@contextmanager
def _os_errors() -> Iterator[None]:
    """A full disk or a missing permission is a message, not a traceback."""
    try:
        yield
    except OSError as error:
        raise Refusal(f"{error.filename}: {error.strerror}") from error
