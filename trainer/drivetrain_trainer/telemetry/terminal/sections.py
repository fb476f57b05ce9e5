"""The panel's sections as blocks of lines of a given width."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.telemetry.terminal import figures
from drivetrain_trainer.telemetry.terminal.layout import (
    Line,
    Span,
    Tone,
    segment,
    spread,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivetrain_trainer.telemetry.facts import EvaluationFigures
    from drivetrain_trainer.telemetry.terminal.glyphs import Glyphs
    from drivetrain_trainer.telemetry.terminal.model import (
        MetricRow,
        PanelModel,
        RewardRow,
        TimingRow,
    )

INDENT = "  "
_MEASURE = 46
"""Cells a row uses at most, so that a figure stays near its label."""
_SHARE_CELLS = 7
_MILLISECOND_CELLS = 8


def metric_block(title: str, rows: Sequence[MetricRow], width: int, glyphs: Glyphs) -> list[Line]:
    """A heading, then label and value a row."""
    measure = min(width, _MEASURE)
    lines = [_padded([Span(title, Tone.HEADING)], [], measure, width, glyphs)] if title else []
    for row in rows:
        label = Span(INDENT * row.indented + row.label)
        lines.append(_padded([label], [_figure(row.text)], measure, width, glyphs))
    return lines


def reward_block(model: PanelModel, width: int, glyphs: Glyphs, *, with_terms: bool) -> list[Line]:
    """Rewards with their peaks, the evaluation, and the terms."""
    measure = min(width, _MEASURE)
    rows = [*model.rewards, *(model.terms if with_terms else ())]
    peaks = _peak_texts(rows, measure)
    peak_cells = max(map(len, peaks), default=0)
    heading = [Span("Rewards", Tone.HEADING)]
    columns = f"mean {'peak':>{peak_cells + 1}}" if peak_cells else "mean"
    lines = [_padded(heading, [Span(columns, Tone.QUIET)], measure, width, glyphs)]
    evaluation_at = len(model.rewards)
    for index, (row, peak) in enumerate(zip(rows, peaks, strict=True)):
        if index == evaluation_at:
            lines += _evaluation(model.evaluation, measure, width, glyphs)
        label = Span(INDENT * row.indented + row.label)
        right = [_figure(figures.value(row.value))]
        if peak_cells:
            right.append(Span(f" {peak:>{peak_cells + 1}}", Tone.QUIET))
        lines.append(_padded([label], right, measure, width, glyphs))
    if len(rows) <= evaluation_at:
        lines += _evaluation(model.evaluation, measure, width, glyphs)
    if with_terms and model.hidden_terms:
        more = Span(f"{INDENT}and {model.hidden_terms} more terms", Tone.QUIET)
        lines.append(_padded([more], [], measure, width, glyphs))
    return lines


def timing_block(title: str, rows: Sequence[TimingRow], width: int, glyphs: Glyphs) -> list[Line]:
    """A heading with units, then milliseconds and share a row; the longest phase stands out."""
    measure = min(width, _MEASURE)
    shares = any(row.share is not None for row in rows)
    units = f"{'ms':>{_MILLISECOND_CELLS}}" + (f"{'%':>{_SHARE_CELLS}}" if shares else "")
    heading = [Span(title, Tone.HEADING)]
    lines = [_padded(heading, [Span(units, Tone.QUIET)] if rows else [], measure, width, glyphs)]
    phases = [row for row in rows if not (row.total or row.indented)]
    longest = max(phases, key=lambda row: row.milliseconds, default=None)
    for row in rows:
        tone = _timing_tone(row, longest=row is longest)
        text = f"{figures.milliseconds(row.milliseconds):>{_MILLISECOND_CELLS}}"
        if shares:
            text += f"{_share(row):>{_SHARE_CELLS}}"
        label = Span(INDENT * row.indented + row.label, tone)
        lines.append(_padded([label], [Span(text, tone)], measure, width, glyphs))
    return lines


def strip(rows: Sequence[MetricRow], width: int, glyphs: Glyphs) -> list[Line]:
    """Facts one after another, on as few lines as they need."""
    lines: list[Line] = []
    pending: list[Span] = []
    for row in rows:
        fact = [Span(f"{row.label} ", Tone.QUIET), Span(row.text, Tone.FIGURE)]
        joined = [*pending, Span(f" {glyphs.dot} ", Tone.FRAME), *fact] if pending else fact
        if pending and sum(span.width for span in joined) > width:
            lines.append(spread(pending, (), width, glyphs))
            joined = fact
        pending = joined
    if pending:
        lines.append(spread(pending, (), width, glyphs))
    return lines


def progress_bar(share: float, width: int, glyphs: Glyphs) -> Line:
    """A bar of `width` cells, in half cells."""
    halves = round(min(max(share, 0.0), 1.0) * 2 * width)
    full, half = divmod(halves, 2)
    return [
        segment(glyphs.bar_full * full + glyphs.bar_half * half, Tone.STRONG),
        segment(glyphs.bar_empty * (width - full - half), Tone.FRAME),
    ]


def _padded(
    left: Sequence[Span], right: Sequence[Span], measure: int, width: int, glyphs: Glyphs
) -> Line:
    line = spread(left, right, measure, glyphs)
    return [*line, segment(" " * (width - measure))] if width > measure else line


def _figure(text: str) -> Span:
    return Span(text, Tone.ALARM if text in ("nan", "inf", "-inf") else Tone.FIGURE)


def _evaluation(
    evaluation: EvaluationFigures | None, measure: int, width: int, glyphs: Glyphs
) -> list[Line]:
    if evaluation is None:
        return []
    result = f"{figures.value(evaluation.mean)} {glyphs.plus_minus} {figures.value(evaluation.sd)}"
    best = f"{figures.value(evaluation.best_mean)} at {figures.compact(evaluation.best_env_steps)}"
    improved = evaluation.best_env_steps == evaluation.env_steps
    tone = Tone.STRONG if improved else Tone.FIGURE
    return [
        _padded([Span("Evaluation")], [Span(result, tone)], measure, width, glyphs),
        _padded([Span(f"{INDENT}best")], [Span(best, Tone.FIGURE)], measure, width, glyphs),
    ]


def _peak_texts(rows: Sequence[RewardRow], measure: int) -> list[str]:
    """Peaks with as many digits as fit beside whole labels and values, or none at all."""
    labels = [len(INDENT) * row.indented + len(row.label) for row in rows]
    values = [len(figures.value(row.value)) for row in rows]
    taken = max((a + b for a, b in zip(labels, values, strict=True)), default=0)
    formats: tuple[Callable[[float], str], ...] = (
        figures.value,
        lambda peak: figures.compact(peak, 4),
        lambda peak: figures.compact(peak, 3),
        lambda peak: figures.compact(peak, 2),
    )
    for form in formats:
        texts = ["" if row.peak is None else form(row.peak) for row in rows]
        cells = max(map(len, texts), default=0)
        if cells and taken + cells + 3 <= measure:
            return texts
    return [""] * len(rows)


def _share(row: TimingRow) -> str:
    return "" if row.share is None else f"{100 * row.share:.1f}"


def _timing_tone(row: TimingRow, *, longest: bool) -> Tone:
    if row.total:
        return Tone.HEADING
    if row.indented:
        return Tone.QUIET
    return Tone.HOT if longest else Tone.PLAIN
