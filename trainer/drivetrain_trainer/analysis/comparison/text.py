"""A comparison as text for a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from drivetrain_trainer.analysis.comparison import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivetrain_trainer.analysis.comparison.circumstances import Circumstances
    from drivetrain_trainer.analysis.comparison.result import Comparison

_GAP = "  "


def as_text(found: Comparison, around: Circumstances, width: int) -> str:
    """Headline, what speaks against it, and the tables.

    Args:
        found: The comparison.
        around: What the runs were run with.
        width: Columns of prose; tables take what they need.
    """
    blocks = [
        _wrapped(words.headline(found), width),
        "\n".join(_wrapped(f"- {note}", width) for note in (*words.caveats(found), *around.notes)),
        _overall(found),
        *(_task(found, place) for place in range(len(found.tasks))),
        _pairs(found),
        _times(around),
        _settings(found, around),
        _left_out(found, width),
    ]
    return words.clean("\n\n".join(block for block in blocks if block))


def _wrapped(text: str, width: int) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 0) -> str:
    """Columns as wide as their widest cell, to the right but for the first and column `left`."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        _GAP.join(
            cell.ljust(wide) if at in (0, left) else cell.rjust(wide)
            for at, (cell, wide) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _overall(found: Comparison) -> str:
    if len(found.tasks) == 1:
        return ""
    rows = [
        (one.side, str(one.runs), words.estimate(one.final), words.estimate(one.area))
        for one in found.sides
    ]
    return table(("ALL TASKS, SCORE", "RUNS", "FINAL IQM [95 %]", "OVER TRAINING [95 %]"), rows)


def _task(found: Comparison, place: int) -> str:
    task = found.tasks[place]
    scores = task.scores
    threshold = "THRESHOLD" if scores.threshold is None else f"TO {words.number(scores.threshold)}"
    rows = [
        (
            one.side,
            str(one.runs),
            words.estimate(one.final),
            words.estimate(one.area),
            words.reached(one),
        )
        for one in task.sides
    ]
    title = f"{scores.task}, {scores.metric.words} at {words.steps(scores.budget)} steps"
    head = (title, "RUNS", "FINAL IQM [95 %]", "OVER TRAINING [95 %]", f"STEPS {threshold}")
    if scores.threshold is None:
        return table(head[:-1], [row[:-1] for row in rows])
    return table(head, rows)


def _pairs(found: Comparison) -> str:
    rows = [
        (f"{one.ours} > {one.theirs}", words.share(one.improvement), words.estimate(one.difference))
        for one in found.pairs
    ]
    return table(("PAIR", "P(IMPROVEMENT) [95 %]", "IQM DIFFERENCE [95 %]"), rows) if rows else ""


def _times(around: Circumstances) -> str:
    rows = [
        (
            f"{one.side}: {one.stage}",
            str(one.runs),
            words.duration(one.mean_seconds),
            words.duration(one.total_seconds),
            one.hardware,
        )
        for one in around.times
    ]
    head = ("STAGE", "RUNS", "MEAN", "SUM", "HARDWARE")
    return table(head, rows, left=len(head) - 1) if rows else ""


def _settings(found: Comparison, around: Circumstances) -> str:
    rows = [(one.name, *one.values) for one in (*around.settings, *around.versions)]
    names = [one.side for one in found.sides]
    return table(("DIFFERS", *names), rows) if rows else ""


def _left_out(found: Comparison, width: int) -> str:
    if not found.left_out:
        return ""
    listed = (f"- {one.run.side}: {one.run.path}: {one.why}" for one in found.left_out)
    return "\n".join(("TAKE NO PART", *(_wrapped(line, width) for line in listed)))
