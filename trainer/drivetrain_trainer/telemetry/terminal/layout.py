"""Lines of exact width, blocks of lines, and the frame around a grid of blocks.

Lines are built directly as styled segments: a tree of generic tables would cost several
milliseconds a redraw, in which the training thread would wait for the interpreter.
"""

from __future__ import annotations

import io
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drivetrain_trainer.telemetry.terminal.glyphs import Glyphs

Line = list[Segment]
"""Segments whose cells add up to the width of the block they stand in."""


class Tone(StrEnum):
    """What a piece of text is, hence how it looks."""

    PLAIN = ""
    FRAME = "bright_black"
    TITLE = "bold cyan"
    HEADING = "bold"
    FIGURE = "cyan"
    QUIET = "dim"
    STRONG = "bold green"
    HOT = "yellow"
    ALARM = "bold red"


_MARKED: Final = "x"
_STYLES = {tone: Style.parse(tone.value) for tone in Tone}


class Span(NamedTuple):
    """A piece of text in one tone."""

    text: str
    tone: Tone = Tone.PLAIN

    @property
    def width(self) -> int:
        """Terminal cells it takes."""
        return cells(self.text)


def cells(text: str) -> int:
    """Terminal cells that a text takes; most is ASCII, where that is its length."""
    return len(text) if text.isascii() else cell_len(text)


def segment(text: str, tone: Tone = Tone.PLAIN) -> Segment:
    """A styled segment."""
    return Segment(text, _STYLES[tone])


def clip(text: str, width: int, glyphs: Glyphs) -> str:
    """The text in at most `width` cells; an ellipsis marks what was cut."""
    if cells(text) <= width:
        return text
    if width <= 1:
        return set_cell_size(text, max(width, 0))
    return set_cell_size(text, width - 1) + glyphs.ellipsis


def shorten(text: str, width: int, glyphs: Glyphs) -> str:
    """The text in at most `width` cells, cut in its middle: both ends tell names apart."""
    if cells(text) <= width:
        return text
    tail = max((width - 1) // 2, 0)
    while cells(text[len(text) - tail :]) > (width - 1) // 2:
        tail -= 1
    end = text[len(text) - tail :]
    return clip(text, width - cells(end), glyphs) + end


def spread(left: Sequence[Span], right: Sequence[Span], width: int, glyphs: Glyphs) -> Line:
    """Left and right aligned spans on one line; the left ones give way."""
    room = width - sum(span.width for span in right)
    if room < 0:
        return spread(right, (), width, glyphs) if left else _clipped(right, width, glyphs)
    line = _clipped(left, room, glyphs)
    return [*line, *(segment(span.text, span.tone) for span in right)]


def _clipped(spans: Sequence[Span], width: int, glyphs: Glyphs) -> Line:
    line: Line = []
    room = width
    for span in spans:
        text = clip(span.text, room, glyphs)
        line.append(segment(text, span.tone))
        room -= cells(text)
        if room <= 0:
            break
    line.append(segment(" " * room))
    return line


class Painter:
    """Turns lines into text with the escape sequences that the terminal understands.

    Colours follow ``TERM``, ``COLORTERM`` and ``NO_COLOR``.
    """

    def __init__(self) -> None:
        console = Console(file=io.StringIO(), force_terminal=True, force_jupyter=False)
        self._marks = {id(style): _marks(console, style) for style in _STYLES.values()}
        """Of each style, which is never made anew: what comes before and behind its text."""

    def paint(self, lines: Sequence[Line]) -> list[str]:
        """The lines, which are as wide as they were made."""
        return [self._painted(line) for line in lines]

    def _painted(self, line: Line) -> str:
        """Neighbours in one style share its sequences."""
        parts: list[str] = []
        current, end = 0, ""
        for text, style, _ in line:
            if id(style) != current:
                current = id(style)
                start, ahead = self._marks[current]
                parts += (end, start)
                end = ahead
            parts.append(text)
        parts.append(end)
        return "".join(parts)


def _marks(console: Console, style: Style) -> tuple[str, str]:
    """What the console writes before and behind a text in this style."""
    with console.capture() as captured:
        console.print(Segments([Segment(_MARKED, style)]), end="", crop=False)
    start, _, end = captured.get().partition(_MARKED)
    return start, end


def blank(width: int) -> Line:
    """An empty line."""
    return [segment(" " * width)]


_PAD: Final = segment(" ")


class Frame:
    """Draws rows of blocks inside one border; rules join the separators above and below."""

    def __init__(self, width: int, glyphs: Glyphs) -> None:
        self._width = width
        self._glyphs = glyphs
        self._upright = segment(glyphs.vertical, Tone.FRAME)
        self._rows: list[tuple[Sequence[Sequence[Line]], Sequence[int]]] = []

    def columns(self, weights: Sequence[int]) -> list[int]:
        """Content widths of columns in these proportions; a cell of padding is on either side."""
        inner = self._width - 1 - 3 * len(weights)
        widths = [inner * weight // sum(weights) for weight in weights]
        for index in range(inner - sum(widths)):
            widths[index] += 1
        return widths

    def row(self, blocks: Sequence[Sequence[Line]], widths: Sequence[int]) -> None:
        """Blocks side by side; a rule sets them apart from what is above."""
        self._rows.append((blocks, widths))

    @property
    def height(self) -> int:
        """Lines of the whole frame, its edges and rules included."""
        return sum(max(map(len, blocks), default=0) + 1 for blocks, _ in self._rows) + 1

    @property
    def title_room(self) -> int:
        """Cells that titles may take together."""
        return self._width - 4

    def finish(self, title: Sequence[Span], right: Sequence[Span], height: int) -> list[Line]:
        """All lines, at most `height` of them: what does not fit is counted at the bottom."""
        body, cuts = self._body()
        room = max(height - 2, 1)
        bottom: list[Span] = []
        if len(body) > room:
            bottom = [Span(f" {len(body) - room} more lines: enlarge the terminal ", Tone.QUIET)]
            body, cuts = body[:room], ()
        g = self._glyphs
        return [
            self._edge(g.top_left, g.top_right, title, right),
            *body,
            self._edge(g.bottom_left, g.bottom_right, bottom, [], cuts),
        ]

    def _body(self) -> tuple[list[Line], tuple[int, ...]]:
        """Every line between the edges, and where the last row's separators stand."""
        lines: list[Line] = []
        above: tuple[int, ...] = ()
        for blocks, widths in self._rows:
            cuts = tuple(self._cut_positions(widths))
            if lines:
                lines.append(self._rule(above, cuts))
            above = cuts
            lines += [self._framed(parts, widths) for parts in zip_longest(*blocks)]
        return lines, above

    def _cut_positions(self, widths: Sequence[int]) -> Iterator[int]:
        position = 0
        for width in widths[:-1]:
            position += width + 3
            yield position

    def _framed(self, lines: Sequence[Line | None], widths: Sequence[int]) -> Line:
        framed: Line = []
        for line, width in zip(lines, widths, strict=True):
            content = line if line is not None else blank(width)
            framed += (self._upright, _PAD, *content, _PAD)
        framed.append(self._upright)
        return framed

    def _rule(self, above: tuple[int, ...], below: tuple[int, ...]) -> Line:
        g = self._glyphs
        inner = [g.horizontal] * (self._width - 2)
        for position in {*above, *below}:
            both = position in above and position in below
            inner[position - 1] = g.cross if both else g.tee_up if position in above else g.tee_down
        return [segment(g.tee_left + "".join(inner) + g.tee_right, Tone.FRAME)]

    def _edge(
        self,
        first: str,
        last: str,
        left: Sequence[Span],
        right: Sequence[Span],
        cuts: tuple[int, ...] = (),
    ) -> Line:
        g = self._glyphs
        room = self.title_room
        right_width = sum(span.width for span in right)
        shown = [s for s in _clipped(left, max(room - right_width, 0), g) if s.text.strip()]
        used = sum(cells(s.text) for s in shown)
        filler = [g.horizontal] * (room - used - right_width)
        for position in cuts:
            if 0 <= position - 2 - used < len(filler):
                filler[position - 2 - used] = g.tee_up
        return [
            segment(first + g.horizontal, Tone.FRAME),
            *shown,
            segment("".join(filler), Tone.FRAME),
            *(segment(span.text, span.tone) for span in right),
            segment(g.horizontal + last, Tone.FRAME),
        ]
