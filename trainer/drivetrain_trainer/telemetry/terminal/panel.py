"""The live panel in three width tiers.

Below 96 columns the sections are stacked and there is one Timing column; from 96 metrics
and rewards share a row above Learner and Collector; from 120 a third column holds System.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

from drivetrain_trainer.telemetry.terminal import figures, sections
from drivetrain_trainer.telemetry.terminal.layout import Frame, Line, Span, Tone, spread
from drivetrain_trainer.telemetry.terminal.model import ITERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivetrain_trainer.telemetry.terminal.glyphs import Glyphs
    from drivetrain_trainer.telemetry.terminal.model import MetricRow, PanelModel
    from drivetrain_trainer.telemetry.terminal.timings import TimingRow

    _Block = Callable[[int], Sequence[Line]]
    _Key = tuple[str | int, ...]
    _Made = dict[_Key, list[Line]]

COMPACT_COLUMNS = 96
"""From here metrics and rewards share a row."""
FULL_COLUMNS = 120
"""From here the timing row has three columns."""
LEAST_COLUMNS = 40
LEAST_LINES = 6
"""Smaller terminals get a few words instead of a frame."""
_WEIGHTS = (34, 36, 40)
"""Proportions of three columns: at 120 every label and figure of the first two just fits, and
the third has room for the names of reward terms beside their peaks."""
_TWO_METRIC_COLUMNS = 72
"""Content width from which stacked metrics stand in two columns."""


class Detail(IntEnum):
    """How much is shown; a low terminal gets less."""

    BRIEF = 0
    """Header, losses, rewards, system."""
    CORE = 1
    """And the timelines."""
    FULL = 2
    """And diagnostics, nested phases."""


@dataclass(frozen=True)
class Extent:
    """How much of everything is shown."""

    detail: Detail
    most_terms: int
    """Terms of a family, such as reward terms, that are listed one by one."""


MOST_TERMS = 16
"""However high the terminal is."""
_EXTENTS = (
    Extent(Detail.FULL, MOST_TERMS),
    Extent(Detail.FULL, 8),
    Extent(Detail.FULL, 4),
    Extent(Detail.FULL, 2),
    Extent(Detail.CORE, 4),
    Extent(Detail.CORE, 2),
    Extent(Detail.CORE, 0),
    Extent(Detail.BRIEF, 4),
    Extent(Detail.BRIEF, 0),
)


def render(model: PanelModel, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The panel in `width` columns, with as much detail as `height` lines allow.

    A terminal that is too small for a frame gets the outcome in a few words.
    """
    if width < LEAST_COLUMNS or height < LEAST_LINES:
        return sections.few_words(model, width, glyphs)[: max(height, 1)]
    made: _Made = {}
    for extent in _EXTENTS:
        panel = _Panel(model, width, glyphs, extent, made)
        if panel.height <= height:
            break
    return panel.lines(height)


class _Panel:
    """One try to draw the model; `made` holds the blocks that earlier ones drew already."""

    def __init__(
        self, model: PanelModel, width: int, glyphs: Glyphs, extent: Extent, made: _Made
    ) -> None:
        self._made = made
        self._model = model
        self._glyphs = glyphs
        self._extent = extent
        self._precise = width >= COMPACT_COLUMNS
        self._frame = Frame(width, glyphs)
        (header_width,) = self._frame.columns([1])
        header = self._once(("header", width), partial(self._header, header_width))
        self._frame.row([header], [header_width])
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
        name = Span(" Drivetrain ", Tone.TITLE)
        run = f"{facts.algo} {dot} {facts.task} {dot} {facts.sim} "
        gpus = Span(f" GPUs {facts.gpus} " if facts.gpus else " GPUs 0 (CPU) ", Tone.HEADING)
        title = [name, Span(f"{dot} {run}", Tone.HEADING)]
        if sum(span.width for span in (*title, gpus)) > self._frame.title_room:
            title = [Span(f" {run}", Tone.HEADING)]
        return self._frame.finish(title, [gpus], height)

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
        rates = [("Steps/s", figures.rate(model.steps_per_second))]
        if model.has_collector:  # the others have no replay
            rates.append(("Rows/s", figures.rate(model.rows_per_second)))
        if model.progress.unit == ITERATIONS:
            rates.append(("Steps", figures.count(model.env_steps)))
        else:
            rates.append(("Iteration", figures.count(model.iteration)))
        spans: list[Span] = []
        for label, text in rates:
            gap = "   " if spans else ""
            spans += [Span(f"{gap}{label} ", Tone.QUIET), Span(text, Tone.FIGURE)]
        return spans

    def _full(self) -> None:
        diagnostics = partial(self._diagnostics, beside_metrics=True)
        some = self._model.diagnostics or self._model.transport
        self._columns(
            self._metrics,
            *((diagnostics,) if some else ()),
            self._rewards,
            weights=_WEIGHTS if some else None,
        )
        if self._extent.detail > Detail.BRIEF:
            self._timing_columns(" (Iter Wall)", " (own clock)", self._system)
        else:
            self._system_strip()

    def _compact(self) -> None:
        self._columns(self._metrics_and_diagnostics, self._rewards)
        if self._extent.detail > Detail.BRIEF:
            self._timing_columns("", "")
        self._system_strip()

    def _stacked(self) -> None:
        (width,) = self._frame.columns([1])
        if width >= _TWO_METRIC_COLUMNS and self._model.diagnostics:
            self._columns(self._metrics, partial(self._diagnostics, beside_metrics=True))
        else:
            self._columns(self._metrics_and_diagnostics)
        self._columns(self._rewards)
        if self._extent.detail > Detail.BRIEF:
            self._columns(self._timing)
        self._system_strip()

    def _columns(self, *blocks: _Block, weights: Sequence[int] | None = None) -> None:
        widths = self._frame.columns(weights or [1] * len(blocks))
        lines = [block(width) for block, width in zip(blocks, widths, strict=True)]
        self._frame.row(lines, widths)

    def _timing_columns(self, learner: str, collector: str, *more: _Block) -> None:
        blocks: list[_Block] = [partial(self._learner, f"Learner{learner}")]
        if self._model.has_collector:
            blocks.append(partial(self._collector, f"Collector{collector}"))
        blocks += more
        self._columns(*blocks, weights=_WEIGHTS if len(blocks) == len(_WEIGHTS) else None)

    def _once(self, key: _Key, block: Callable[[], list[Line]]) -> list[Line]:
        if key not in self._made:
            self._made[key] = block()
        return self._made[key]

    def _metrics(self, width: int) -> list[Line]:
        return self._rows("Metrics", self._model.metrics, width)

    def _diagnostics(self, width: int, *, beside_metrics: bool = False) -> list[Line]:
        """In a low terminal only as many as cost no height, which is none below metrics."""
        model = self._model
        training = self._group("Training", model.diagnostics, width)
        lines = [*training, *self._group("Transport", model.transport, width)]
        if self._extent.detail is Detail.FULL:
            return lines
        room = len(model.metrics) + 1 if beside_metrics else 0
        return lines[: room - (room == len(training) + 1)]

    def _group(self, title: str, rows: Sequence[MetricRow], width: int) -> list[Line]:
        return self._rows(title, rows, width) if rows else []

    def _rows(self, title: str, rows: Sequence[MetricRow], width: int) -> list[Line]:
        block = partial(sections.metric_block, title, rows, width, self._glyphs)
        return self._once((title, width), block)

    def _metrics_and_diagnostics(self, width: int) -> list[Line]:
        return [*self._metrics(width), *self._diagnostics(width)]

    def _rewards(self, width: int) -> list[Line]:
        return self._once(("Rewards", width, self._extent.most_terms), partial(self._terms, width))

    def _terms(self, width: int) -> list[Line]:
        model, most, glyphs = self._model, self._extent.most_terms, self._glyphs
        lines = sections.reward_block(model, width, glyphs, most_terms=most, precise=self._precise)
        for group in model.other_terms:
            lines += sections.term_block(group, width, glyphs, most_terms=most)
        return lines

    def _phases(self, title: str, rows: Sequence[TimingRow], width: int) -> list[Line]:
        block = partial(sections.timing_block, title, rows, width, self._glyphs)
        return self._once((title, width, len(rows)), block)

    def _learner(self, title: str, width: int) -> list[Line]:
        return self._phases(title, self._model.learner, width)

    def _collector(self, title: str, width: int) -> list[Line]:
        rows = self._model.collector
        if self._extent.detail < Detail.FULL:
            rows = tuple(row for row in rows if not row.indented)
        return self._phases(title, rows, width)

    def _system(self, width: int) -> list[Line]:
        return self._rows("System", self._model.system, width)

    def _timing(self, width: int) -> list[Line]:
        collector = self._collector("Collector", width) if self._model.has_collector else []
        return [*self._phases("Timing", (), width), *self._learner("Learner", width), *collector]

    def _system_strip(self) -> None:
        (width,) = self._frame.columns([1])
        strip = partial(sections.strip, self._model.system, width, self._glyphs)
        self._frame.row([self._once(("strip", width), strip)], [width])
