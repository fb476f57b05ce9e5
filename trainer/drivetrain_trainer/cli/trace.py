"""``drivetrain trace``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drivetrain_trainer.cli.refusal import refusing

if TYPE_CHECKING:
    from collections.abc import Callable

_PATHS = click.argument(
    "run", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN..."
)


@click.group(
    epilog="""\b
Examples:
  drivetrain trace summary logs/sac/half_cheetah/2026-01-01_00-00-00_mujoco
  drivetrain trace merge logs/sac/half_cheetah/2026-01-01_00-00-00_mujoco -o trace.json.gz
"""
)
def trace() -> None:
    """Summarize, merge and check the timeline traces of a run.

    A run that has `training.traceEnabled` writes one trace for each process and attempt
    into `traces` in its run directory, for ui.perfetto.dev. RUN is a run directory, a folder
    of traces, or a trace file; runs that are still going on, or were killed, do as well.
    """


@trace.command(
    epilog="""\b
Examples:
  drivetrain trace summary RUN
  drivetrain trace summary RUN --json | jq .overlaps
"""
)
@_PATHS
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def summary(run: tuple[Path, ...], *, as_json: bool) -> None:
    """Time by span, overlaps and latencies, without a viewer.

    For each thread: count, mean, median, 99th percentile, total and share of every span.
    Then what ran beside what (learning and env steps, copies to the device and learning), and
    how long each tick took from point to point. Exits with 2 where there is no trace.
    """
    from drivetrain_trainer.tracing.describe import describe  # noqa: PLC0415 - for --help's sake
    from drivetrain_trainer.tracing.summary import summarize, to_json  # noqa: PLC0415 - likewise

    files = _files(run)
    with refusing(*_errors()), _Progress("read") as progress:
        found = summarize(files, progress=progress)
    click.echo(json.dumps(to_json(found), indent=2) if as_json else describe(found))


@trace.command(
    epilog="""\b
Examples:
  drivetrain trace merge RUN
  drivetrain trace merge RUN -o two-ranks.json
"""
)
@_PATHS
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="trace.json.gz",
    show_default=True,
    help="File to write; compressed if its name ends in .gz.",
)
def merge(run: tuple[Path, ...], *, output: Path) -> None:
    """Put the traces of all ranks and attempts into one file.

    Processes of one machine share its monotonic clock; those of other machines, and attempts
    after a reboot, are put beside them by their wall clocks. Exits with 2 where there is no
    trace, or the file cannot be written.
    """
    from drivetrain_trainer.tracing.merge import merge as merge_files  # noqa: PLC0415 - as above

    files = _files(run)
    with refusing(*_errors(), OSError), _Progress("written") as progress:
        merged = merge_files(files, output, progress=progress)
    click.echo(
        f"{merged.path}: {merged.events:,} events of {merged.files} files, "
        f"{merged.bytes / 1e6:.1f} MB; open it at https://ui.perfetto.dev"
    )


@trace.command(
    epilog="""\b
Examples:
  drivetrain trace validate RUN
  drivetrain trace validate trace.json.gz
"""
)
@_PATHS
def validate(run: tuple[Path, ...]) -> None:
    """Check that traces keep what the format promises.

    Spans nest, arrows are bound to spans and pass their points in order, processes and
    threads are named. Exits with 1 where a promise is broken, with 2 where there is no trace.
    """
    from drivetrain_trainer.tracing.validate import validate as check  # noqa: PLC0415 - as above

    files = _files(run)
    with refusing(*_errors()):
        verdict = check(files)
    for fault in verdict.faults:
        click.echo(fault, err=True)
    if verdict.more_faults:
        click.echo(f"and {verdict.more_faults:,} more", err=True)
    click.echo(
        f"{'sound' if verdict.sound else 'NOT sound'}: {verdict.events:,} events, "
        f"{verdict.spans:,} spans, {verdict.arrows:,} whole arrows, {verdict.cut_arrows:,} cut"
    )
    if not verdict.sound:
        sys.exit(1)


def _files(run: tuple[Path, ...]) -> list[Path]:
    from drivetrain_trainer.tracing.reader import locate  # noqa: PLC0415 - as above

    with refusing(*_errors()):
        return [file for path in run for file in locate(path)]


def _errors() -> tuple[type[Exception], ...]:
    from drivetrain_trainer.tracing.reader import TraceError  # noqa: PLC0415 - as above

    return (TraceError,)


class _Progress:
    """Events so far on a terminal's standard error; nothing elsewhere."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._shown = False
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Callable[[int], None]:
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)

    def _show(self, events: int) -> None:
        if self._terminal:
            self._shown = True
            click.echo(f"\r{events:,} events {self._verb}", nl=False, err=True)
