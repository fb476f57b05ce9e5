"""What ``drivetrain compare`` does: find, read, compare, and write what was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis.comparison import circumstances, comparison, inputs, reading, text
from drivetrain_trainer.analysis.comparison.inputs import ComparisonError
from drivetrain_trainer.analysis.grouping import parse_keys
from drivetrain_trainer.analysis.loading import REFUSALS as LOADING
from drivetrain_trainer.analysis.plot import PlotError, check_format, check_matplotlib

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from drivetrain_trainer.analysis.comparison.circumstances import Circumstances
    from drivetrain_trainer.analysis.comparison.result import Comparison, Options

REFUSALS: Final = (ComparisonError, PlotError, *LOADING)
"""What a person can mend: one message each."""


@dataclass(frozen=True)
class Made:
    """A comparison and what surrounds it."""

    found: Comparison
    around: Circumstances

    def as_text(self, width: int) -> str:
        """For a terminal with so many columns."""
        return text.as_text(self.found, self.around, width)

    def as_json(self) -> str:
        """One JSON object."""
        # Pydantic builds these models when they are imported, and most calls need none.
        from drivetrain_trainer.analysis.comparison.document import (  # noqa: PLC0415
            ComparisonDocument,
        )

        return ComparisonDocument.of(self.found, self.around).to_json().rstrip("\n")


def run(
    arguments: Sequence[str],
    group: str | None,
    options: Options,
    *,
    output: Path | None,
    picture: Path | None,
    tell: Callable[[str], None],
) -> Made:
    """Compare.

    Args:
        arguments: Sides: see `inputs.find`.
        group: Settings between commas by which runs are put together; None for by arguments.
        options: What is compared and how.
        output: HTML report to write.
        picture: Figures to write.
        tell: Given words on progress, on damage that was read around, and on files written.

    Raises:
        ComparisonError, PlotError: see there; nothing was written.
        OSError: a file cannot be read or written.
    """
    if picture is not None:
        check_format(picture)
    if output is not None or picture is not None:
        check_matplotlib()
    runs = reading.read_runs(inputs.find(arguments, parse_keys(group) if group else ()), tell)
    for one in runs:
        for damage in one.damage:
            tell(damage)
    found = comparison.compare(runs, options)
    made = Made(found, circumstances.look(found.runs))
    if output is not None:
        from drivetrain_trainer.analysis.comparison import report  # noqa: PLC0415 - as matplotlib

        report.save(made.found, made.around, output)
        tell(f"{output}: report of {len(found.runs)} runs")
    if picture is not None:
        from drivetrain_trainer.analysis.comparison import figures  # noqa: PLC0415 - as matplotlib

        figures.save(found, picture)
        tell(f"{picture}: figures of {len(found.runs)} runs")
    return made
