"""A run looked at: which one, how it stands, what its figures amount to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis.choice import NoRunError, runs_below
from drivetrain_trainer.analysis.condition import condition_of
from drivetrain_trainer.analysis.diagnosis import diagnose
from drivetrain_trainer.analysis.findings import Setup
from drivetrain_trainer.analysis.rows import FileChangedError
from drivetrain_trainer.analysis.runs import RunFolder, RunFolderError
from drivetrain_trainer.analysis.schema_check import SchemaError
from drivetrain_trainer.analysis.window import EmptyRunError, window_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_api.artifacts.run_config import RunConfig
    from drivetrain_api.artifacts.run_summary import RunSummary
    from drivetrain_trainer.analysis.condition import Condition
    from drivetrain_trainer.analysis.diagnosis import Diagnosis
    from drivetrain_trainer.analysis.runs import Series
    from drivetrain_trainer.analysis.window import Span, Window

REFUSALS: Final = (NoRunError, RunFolderError, SchemaError, EmptyRunError, FileChangedError)
"""What a person can mend: one message each."""


@dataclass(frozen=True)
class Examination:
    """What `drivetrain diagnose` says of a run."""

    run: Path
    """The run directory."""
    others: int
    """Runs that were there beside it, and are older; 0 where the run itself was named."""
    summary: RunSummary
    config: RunConfig | None
    """None where the run ended before it was written."""
    env_steps: int
    """Done, by the summary or by the newest report: of a killed run the report is newer."""
    iterations: int
    """Done, likewise."""
    condition: Condition
    window: Window
    diagnosis: Diagnosis
    traces: Path | None
    """Folder of the traces, where there are some."""
    damage: tuple[str, ...]
    """What of the files could not be read."""


def examine(path: Path, span: Span, *, now: float | None = None) -> Examination:
    """Look at a run, or at the newest below a folder.

    Args:
        path: Run directory, or a folder with some.
        span: Reports to look at.
        now: The present, seconds since the epoch; the clock's when unset.

    Raises:
        NoRunError, RunFolderError, SchemaError, EmptyRunError, FileChangedError: see there.
        OSError: a file cannot be read.
    """
    runs = runs_below(path)
    folder = RunFolder.open(runs[-1])
    metrics = folder.metrics()
    window = _window(folder, metrics.by_tag, span)
    summary, config = folder.summary, folder.config
    if summary is None:
        raise SchemaError(f"{folder.summary_path} is not there: it says what state the run is in")
    setup = Setup.of(config) if config is not None else Setup()
    env_steps, iterations = _done(summary, metrics.series("Train/iteration"))
    written = max(window.ended, folder.summary_path.stat().st_mtime)
    return Examination(
        run=folder.path,
        others=len(runs) - 1,
        summary=summary,
        config=config,
        env_steps=env_steps,
        iterations=iterations,
        condition=condition_of(
            summary,
            written=written,
            gap=window.gap,
            now=time.time() if now is None else now,
        ),
        window=window,
        diagnosis=diagnose(window, setup, summary.telemetry),
        traces=folder.traces,
        damage=metrics.damage,
    )


def _done(summary: RunSummary, reported: Series) -> tuple[int, int]:
    """Environment steps and iterations, by whichever of the two is further."""
    done = (summary.total_env_steps, summary.completed_iterations)
    if not len(reported):
        return done
    return max(done, (int(reported.steps[-1]), int(reported.values[-1])))


def _window(folder: RunFolder, series: Mapping[str, Series], span: Span) -> Window:
    try:
        return window_of(series, span)
    except EmptyRunError as error:
        raise EmptyRunError(f"{folder.path}: {error}") from None
