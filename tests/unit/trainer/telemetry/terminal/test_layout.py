"""Lines, and the text that a terminal is given for them."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from drivetrain_trainer.telemetry.terminal.layout import Line, Painter, Tone, cells, segment

WORDS = st.sampled_from(["", " ", "Iter Wall", "│", "12.5 ms", "名前"])
LINES = st.lists(
    st.lists(st.tuples(WORDS, st.sampled_from(Tone)), max_size=6).map(
        lambda parts: [segment(text, tone) for text, tone in parts]
    ),
    max_size=4,
)


def by_the_console(lines: list[Line]) -> list[Text]:
    """Line by line what rich prints, read back: text and the style of each character."""
    console = Console(file=io.StringIO(), force_terminal=True, force_jupyter=False)
    with console.capture() as captured:
        for line in lines:
            console.print(Segments([*line, Segment.line()]), end="", crop=False)
    return [Text.from_ansi(text) for text in captured.get().split("\n")[:-1]]


@pytest.mark.parametrize(
    "variables",
    [
        {"TERM": "xterm-256color"},
        {"TERM": "xterm", "COLORTERM": "truecolor"},
        {"TERM": "xterm-256color", "NO_COLOR": "1"},
        {"TERM": "dumb"},
    ],
    ids=str,
)
@given(lines=LINES)
def test_lines_look_as_the_console_would_print_them(
    variables: dict[str, str], lines: list[Line]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TERM", "COLORTERM", "NO_COLOR"):
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        painted = [Text.from_ansi(text) for text in Painter().paint(lines)]
        expected = by_the_console(lines)
    assert [styled(text) for text in painted] == [styled(text) for text in expected]


def styled(text: Text) -> list[tuple[str, str]]:
    """Every character that can be seen, with how it looks."""
    console = Console(force_terminal=True, color_system="truecolor")
    return [
        (character, str(text.get_style_at_offset(console, index)))
        for index, character in enumerate(text.plain)
    ]


@pytest.mark.parametrize(("text", "size"), [("", 0), ("Iter", 4), ("─", 1), ("名前", 4), ("é", 1)])
def test_cells_are_what_a_terminal_needs(text: str, size: int) -> None:
    assert cells(text) == size
