"""The panel's sections as blocks of lines of a given width."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from drivetrain_trainer.telemetry.terminal import figures
from drivetrain_trainer.telemetry.terminal.layout import (
    Line,
    Span,
    Tone,
    segment,
    shorten,
    spread,
)
from drivetrain_trainer.telemetry.terminal.model import MetricRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivetrain_trainer.telemetry.facts import EvaluationFigures
    from drivetrain_trainer.telemetry.terminal.glyphs import Glyphs
    from drivetrain_trainer.telemetry.terminal.model import (
        PanelModel,
        RewardRow,
        TermGroup,
    )
    from drivetrain_trainer.telemetry.terminal.timings import TimingRow

INDENT = "  "
_MEASURE = 46
"""Cells a row uses at most, so that a figure stays near its label."""
_SHARE_CELLS = 7
_MILLISECOND_CELLS = 8
_PEAK_FORMS: tuple[Callable[[float], str], ...] = (
    figures.value,
    lambda peak: figures.compact(peak, 3),
    lambda peak: figures.compact(peak, 2),
)
"""From all digits to two."""


def metric_block(title: str, rows: Sequence[MetricRow], width: int, glyphs: Glyphs) -> list[Line]:
    """A heading, then label and value a row."""
    measure = min(width, _MEASURE)
    lines = [_padded([Span(title, Tone.HEADING)], [], measure, width, glyphs)] if title else []
    for row in rows:
        label = Span(INDENT * row.indented + row.label)
        lines.append(_padded([label], [_figure(row.text)], measure, width, glyphs))
    return lines


def reward_block(
    model: PanelModel, width: int, glyphs: Glyphs, *, most_terms: int, precise: bool
) -> list[Line]:
    """Rewards with their peaks, the evaluation, and the terms.

    Args:
        model: what to show.
        width: cells.
        glyphs: characters to draw with.
        most_terms: terms of a family that are listed one by one; the others are counted.
        precise: whether peaks may have all their digits. They lose more of them before a label
            is cut: the name of a term, which is long, in its middle, and no other label.
    """
    measure = min(width, _MEASURE)
    terms, hidden = _listed(model.reward_terms, most_terms)
    peaks = _peak_texts((*model.rewards, *terms), measure, precise=precise)
    peak_cells = max(map(len, peaks.values()), default=0)
    columns = f"mean {'peak':>{peak_cells + 1}}" if peak_cells else "mean"
    heading = [Span("Rewards", Tone.HEADING)]
    lines = [_padded(heading, [Span(columns, Tone.QUIET)], measure, width, glyphs)]

    def add(row: RewardRow) -> None:
        peak = f"{peaks.get(row.label, ''):>{peak_cells + 2}}" if peak_cells else ""
        lines.append(_term(row, peak, width, glyphs))

    for row in model.rewards:
        add(row)
    lines += _evaluation(model.evaluation, measure, width, glyphs)
    for row in terms:
        add(row)
    return [*lines, *_more(hidden, width, glyphs)]


def term_block(group: TermGroup, width: int, glyphs: Glyphs, *, most_terms: int) -> list[Line]:
    """A heading, then the members of a family, which have no peaks."""
    measure = min(width, _MEASURE)
    terms, hidden = _listed(group, most_terms)
    heading = _padded([Span(group.title, Tone.HEADING)], [], measure, width, glyphs)
    lines = [_term(row, "", width, glyphs) for row in terms]
    return [heading, *lines, *_more(hidden, width, glyphs)] if terms else []


def _term(row: RewardRow, peak: str, width: int, glyphs: Glyphs) -> Line:
    """Label, value and the column of peaks, where there is one."""
    measure = min(width, _MEASURE)
    text = figures.value(row.value)
    room = measure - len(text) - len(peak) - 1
    label = Span(shorten(INDENT * row.indented + row.label, room, glyphs))
    return _padded([label], [_figure(text), Span(peak, Tone.QUIET)], measure, width, glyphs)


def _listed(group: TermGroup, most: int) -> tuple[tuple[RewardRow, ...], int]:
    """The first terms, and how many more there are: never one, which needs a line as well."""
    if not most:
        return (), 0
    listed = group.rows if len(group.rows) == most + 1 else group.rows[:most]
    return listed, len(group.rows) - len(listed)


def _more(hidden: int, width: int, glyphs: Glyphs) -> list[Line]:
    text = Span(f"{INDENT}+{hidden} more", Tone.QUIET)
    return [spread([text], [], width, glyphs)] if hidden else []


def timing_block(title: str, rows: Sequence[TimingRow], width: int, glyphs: Glyphs) -> list[Line]:
    """A heading with units, then milliseconds and share a row; the longest phase stands out."""
    measure = min(width, _MEASURE)
    shares = any(row.share is not None for row in rows)
    units = f"{'ms':>{_MILLISECOND_CELLS}}" + (f"{'%':>{_SHARE_CELLS}}" if shares else "")
    heading = [Span(title, Tone.HEADING)]
    lines = [_padded(heading, [Span(units, Tone.QUIET)] if rows else [], measure, width, glyphs)]
    phases = [row for row in rows if not (row.total or row.indented or row.violation)]
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
        label = Span(f"{row.label} " if row.label else "", Tone.QUIET)
        fact = [label, Span(row.text, Tone.FIGURE)]
        joined = [*pending, Span(f" {glyphs.dot} ", Tone.FRAME), *fact] if pending else fact
        if pending and sum(span.width for span in joined) > width:
            lines.append(spread(pending, (), width, glyphs))
            joined = fact
        pending = joined
    if pending:
        lines.append(spread(pending, (), width, glyphs))
    return lines


def few_words(model: PanelModel, width: int, glyphs: Glyphs) -> list[Line]:
    """The outcome, for a terminal too small for a frame; the most wanted first."""
    progress = model.progress
    position = MetricRow(progress.unit, figures.compact(progress.position))
    if progress.share is not None:
        position = MetricRow("", figures.percent(progress.share))
    facts = [
        position,
        MetricRow("Steps/s", figures.rate(model.steps_per_second)),
        *(MetricRow(row.label, figures.value(row.value)) for row in model.rewards[:1]),
        MetricRow("ETA", figures.duration(progress.eta_s)),
        MetricRow("GPUs", str(model.facts.gpus)),
    ]
    return strip(facts, width, glyphs)


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
    result = figures.value(evaluation.mean)
    if math.isfinite(evaluation.sd):  # a single episode has none
        result += f" {glyphs.plus_minus} {figures.value(evaluation.sd)}"
    best = f"{figures.value(evaluation.best_mean)} at {figures.compact(evaluation.best_env_steps)}"
    improved = evaluation.best_env_steps == evaluation.env_steps
    tone = Tone.STRONG if improved else Tone.FIGURE
    return [
        _padded([Span("Evaluation")], [Span(result, tone)], measure, width, glyphs),
        _padded([Span(f"{INDENT}best")], [Span(best, Tone.FIGURE)], measure, width, glyphs),
    ]


def _peak_texts(rows: Sequence[RewardRow], measure: int, *, precise: bool) -> dict[str, str]:
    """Peaks with as many digits as fit beside whole labels, and two at least."""
    taken = max(map(_taken, rows), default=0)
    peaks = {row.label: row.peak for row in rows if row.peak is not None}
    texts: dict[str, str] = {}
    for form in _PEAK_FORMS if precise else _PEAK_FORMS[1:]:
        texts = {label: form(peak) for label, peak in peaks.items()}
        if taken + max(map(len, texts.values()), default=0) + 3 <= measure:
            break
    return texts


def _taken(row: RewardRow) -> int:
    return len(INDENT) * row.indented + len(row.label) + len(figures.value(row.value))


def _share(row: TimingRow) -> str:
    return "" if row.share is None else f"{100 * row.share:.1f}"


def _timing_tone(row: TimingRow, *, longest: bool) -> Tone:
    if row.violation:
        return Tone.ALARM
    if row.total:
        return Tone.HEADING
    if row.indented:
        return Tone.QUIET
    return Tone.HOT if longest else Tone.PLAIN
