"""The live panel in three width tiers.

Below 96 columns the sections are stacked and there is one Timing column; from 96 metrics
and rewards share a row above Learner and Collector; from 120 a third column holds System.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from rich.segment import Segment

from drivetrain_trainer.telemetry.terminal import figures, sections
from drivetrain_trainer.telemetry.terminal.layout import Frame, Line, Span, Tone, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions

    from drivetrain_trainer.telemetry.terminal.glyphs import Glyphs
    from drivetrain_trainer.telemetry.terminal.model import PanelModel

COMPACT_COLUMNS = 96
"""From here metrics and rewards share a row."""
FULL_COLUMNS = 120
"""From here the timing row has three columns."""
LEAST_COLUMNS = 40
"""Narrower terminals get a panel of this width, which they cut."""
_TWO_METRIC_COLUMNS = 72
"""Content width from which stacked metrics stand in two columns."""


class Detail(IntEnum):
    """How much is shown; a low terminal gets less."""

    BRIEF = 0
    """Header, losses, rewards, system."""
    CORE = 1
    """And the timelines."""
    FULL = 2
    """And diagnostics, reward terms, nested phases."""


def render(model: PanelModel, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The panel in `width` columns, with as much detail as `height` lines allow."""
    for detail in reversed(Detail):
        panel = _Panel(model, max(width, LEAST_COLUMNS), glyphs, detail)
        if panel.height <= height:
            break
    return panel.lines(height)


@dataclass(frozen=True)
class PanelRenderable:
    """Lines as rich prints them; they need no measuring or wrapping."""

    drawn: Sequence[Line]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for index, line in enumerate(self.drawn):
            if index:
                yield Segment.line()
            yield from line


class _Panel:
    def __init__(self, model: PanelModel, width: int, glyphs: Glyphs, detail: Detail) -> None:
        self._model = model
        self._glyphs = glyphs
        self._detail = detail
        self._frame = Frame(width, glyphs)
        (header_width,) = self._frame.columns(1)
        self._frame.row([self._header(header_width)], [header_width])
        if width >= FULL_COLUMNS:
            self._full()
        elif width >= COMPACT_COLUMNS:
            self._compact()
        else:
            self._stacked()

    @property
    def height(self) -> int:
        return self._frame.height

    def lines(self, height: int) -> list[Line]:
        facts = self._model.facts
        dot = self._glyphs.dot
        title = [
            Span(" Drivetrain ", Tone.TITLE),
            Span(f"{dot} {facts.algo} {dot} {facts.task} {dot} {facts.sim} ", Tone.HEADING),
        ]
        return self._frame.finish(title, [Span(f" GPUs {facts.gpus} ", Tone.HEADING)], height)

    def _header(self, width: int) -> list[Line]:
        model, g = self._model, self._glyphs
        window = f"Avg 2s (n={model.samples})"
        up = f"up {figures.duration(model.elapsed_s)}"
        lines = [
            spread(
                [Span(model.facts.run_name)],
                [Span(f" {window} {g.dot} {up}", Tone.QUIET)],
                width,
                g,
            )
        ]
        progress = model.progress
        if progress.share is not None:
            lines.append(sections.progress_bar(progress.share, width, g))
        position, rates, eta = self._position(), self._rates(), self._eta()
        joined = [*position, Span("     "), *rates]
        if sum(span.width for span in (*joined, *eta)) <= width:
            lines.append(spread(joined, eta, width, g))
        else:
            lines += [spread(position, eta, width, g), spread(rates, (), width, g)]
        return lines

    def _position(self) -> list[Span]:
        progress = self._model.progress
        position = figures.count(progress.position)
        if progress.target is None or progress.share is None:
            return [Span(position, Tone.FIGURE), Span(f" {progress.unit}")]
        return [
            Span(figures.percent(progress.share), Tone.STRONG),
            Span("   "),
            Span(position, Tone.FIGURE),
            Span(f" / {figures.count(progress.target)} {progress.unit}"),
        ]

    def _eta(self) -> list[Span]:
        progress = self._model.progress
        if progress.target is None:
            return []
        return [Span(" ETA ", Tone.QUIET), Span(figures.duration(progress.eta_s), Tone.FIGURE)]

    def _rates(self) -> list[Span]:
        model = self._model
        rates = (
            ("Steps/s", figures.rate(model.steps_per_second)),
            ("Rows/s", figures.rate(model.rows_per_second)),
            ("Iteration", figures.count(model.iteration)),
        )
        spans: list[Span] = []
        for label, text in rates:
            gap = "   " if spans else ""
            spans += [Span(f"{gap}{label} ", Tone.QUIET), Span(text, Tone.FIGURE)]
        return spans

    def _full(self) -> None:
        widths = self._frame.columns(3)
        self._frame.row(
            [
                self._metrics(widths[0]),
                self._diagnostics(widths[1], beside_metrics=True),
                self._rewards(widths[2]),
            ],
            widths,
        )
        if self._detail > Detail.BRIEF:
            self._frame.row(
                [
                    self._learner("Learner (Iter Wall)", widths[0]),
                    self._collector("Collector (own clock)", widths[1]),
                    sections.metric_block("System", self._model.system, widths[2], self._glyphs),
                ],
                widths,
            )
        else:
            self._system_strip()

    def _compact(self) -> None:
        widths = self._frame.columns(2)
        metrics = [*self._metrics(widths[0]), *self._diagnostics(widths[0])]
        self._frame.row([metrics, self._rewards(widths[1])], widths)
        if self._detail > Detail.BRIEF:
            self._frame.row(
                [self._learner("Learner", widths[0]), self._collector("Collector", widths[1])],
                widths,
            )
        self._system_strip()

    def _stacked(self) -> None:
        (width,) = self._frame.columns(1)
        if width >= _TWO_METRIC_COLUMNS and self._model.diagnostics:
            halves = self._frame.columns(2)
            diagnostics = self._diagnostics(halves[1], beside_metrics=True)
            self._frame.row([self._metrics(halves[0]), diagnostics], halves)
        else:
            self._frame.row([[*self._metrics(width), *self._diagnostics(width)]], [width])
        self._frame.row([self._rewards(width)], [width])
        if self._detail > Detail.BRIEF:
            self._frame.row([self._timing(width)], [width])
        self._system_strip()

    def _metrics(self, width: int) -> list[Line]:
        return sections.metric_block("Metrics", self._model.metrics, width, self._glyphs)

    def _diagnostics(self, width: int, *, beside_metrics: bool = False) -> list[Line]:
        """In a low terminal only as many as cost no height, which is none below metrics."""
        rows = self._model.diagnostics
        if self._detail < Detail.FULL:
            rows = rows[: len(self._model.metrics)] if beside_metrics else ()
        return sections.metric_block("Training", rows, width, self._glyphs) if rows else []

    def _rewards(self, width: int) -> list[Line]:
        with_terms = self._detail is Detail.FULL
        return sections.reward_block(self._model, width, self._glyphs, with_terms=with_terms)

    def _learner(self, title: str, width: int) -> list[Line]:
        return sections.timing_block(title, self._model.learner, width, self._glyphs)

    def _collector(self, title: str, width: int) -> list[Line]:
        rows = self._model.collector
        if self._detail < Detail.FULL:
            rows = tuple(row for row in rows if not row.indented)
        return sections.timing_block(title, rows, width, self._glyphs)

    def _timing(self, width: int) -> list[Line]:
        heading = sections.timing_block("Timing", (), width, self._glyphs)
        learner, collector = self._learner("Learner", width), self._collector("Collector", width)
        return [*heading, *learner, *collector]

    def _system_strip(self) -> None:
        (width,) = self._frame.columns(1)
        self._frame.row([sections.strip(self._model.system, width, self._glyphs)], [width])
