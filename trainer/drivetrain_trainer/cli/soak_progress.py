"""What a person sees of a soak: a line while it goes on, and the verdict."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from drivetrain_api.artifacts.soak import SoakStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from drivetrain_api.artifacts.soak import SoakArtifact
    from drivetrain_trainer.soak.monitor import Monitor

_QUIET_SECONDS: Final = 60.0
"""Between two lines where nobody watches a terminal."""
_MEBIBYTE: Final = 1 << 20


class ProgressLine:
    """The newest sample on standard error: in place on a terminal, a line a minute elsewhere."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._terminal = sys.stderr.isatty()
        self._next = 0.0

    def show(self) -> None:
        """Tell of the newest sample."""
        now = time.monotonic()
        if not self._terminal and now < self._next:
            return
        self._next = now + _QUIET_SECONDS
        line = progress_line(self._monitor)
        click.echo(f"\r\033[K{line}" if self._terminal else line, nl=not self._terminal, err=True)

    def clear(self) -> None:
        """Leave the terminal's line empty."""
        if self._terminal:
            click.echo("\r\033[K", nl=False, err=True)


def progress_line(monitor: Monitor) -> str:
    """Time, ticks and resources of the newest sample."""
    sample = monitor.store.samples[-1]
    figures = sample.mean
    parts = [f"soak {clock(sample.at)}"]
    if sample.env_steps is None:
        parts.append("waiting for the run")
    else:
        parts.append(f"iteration {sample.iteration:,}, {sample.env_steps:,} steps")
    if sample.rate is not None:
        parts.append(f"{sample.rate:,.0f} steps/s")
    parts += [
        f"{figures.processes} processes",
        f"rss {figures.rss_bytes / _MEBIBYTE:,.0f} MiB",
        f"{figures.fds} fds",
        f"{figures.threads} threads",
    ]
    if figures.gpu_bytes is not None:
        parts.append(f"gpu {figures.gpu_bytes / _MEBIBYTE:,.0f} MiB")
    return "  ".join(parts)


def verdict_lines(artifact: SoakArtifact, output: Path) -> Iterator[str]:
    """The verdict, the figures behind it, and where the artifact lies."""
    passed = artifact.status is SoakStatus.PASSED
    after = f"{clock(artifact.duration_s)}, {artifact.monitor.raw_samples:,} samples"
    if passed:
        yield f"{click.style('PASSED', fg='green', bold=True)} after {after}"
    else:
        kind = artifact.failure_classification
        word = click.style("FAILED", fg="red", bold=True)
        yield f"{word} after {after}: {kind.value if kind is not None else ''}"
        yield f"  {artifact.failure_reason}"
    for name, found in artifact.resource_summary.resources.items():
        counted = name in ("fds", "threads")
        unit, text = (1, "") if counted else (_MEBIBYTE, " MiB")
        grew = "not judged" if found.growth is None else f"{found.growth / unit:+,.0f}{text}"
        yield (
            f"  {name:8} peak {found.peak / unit:,.0f}{text}, growth {grew} "
            f"(limit {found.limit / unit:,.0f}{text})"
        )
    rate = artifact.resource_summary.throughput.median
    if rate is not None:
        yield f"  {'steps/s':8} median {rate:,.0f}"
    yield f"{output}"


def clock(seconds: float) -> str:
    """`0:12:30`."""
    return str(timedelta(seconds=int(seconds)))
