"""The lines at the bottom of a terminal that are redrawn in place; the rest scrolls above."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any, TextIO

from drivetrain_trainer.telemetry.terminal.output import LARGEST_BACKLOG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drivetrain_trainer.telemetry.terminal.output import Output

_CLEAR = "\x1b[2J\x1b[H"
_ERASE_BELOW = "\x1b[J"


class Canvas:
    """Draws one drawing over the last one; safe to use from two threads.

    The cursor rests behind the drawing and stays visible, so that a killed process leaves a
    usable terminal.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._lock = threading.Lock()
        self._drawing = ""
        self._height = 0
        self._text: list[str] = []
        self._text_size = 0

    def draw(self, lines: list[str], *, clear: bool = False) -> bool:
        """Draw the lines, whose width is the terminal's.

        Args:
            lines: the whole drawing, without line ends.
            clear: erase the screen first, because the old drawing cannot be found on it.

        Returns:
            False where the terminal has not even taken the last one yet.
        """
        if not self._output.drain():
            return False
        with self._lock:
            text = self._take_text()
            erase = bool(text) or len(lines) < self._height
            start = _CLEAR if clear else self._return_to_top(erase=erase)
            self._drawing = "\n".join(lines)
            self._height = len(lines)
            self._output.write(start + text + self._drawing)
            return True

    def print_above(self, text: str) -> None:
        """Let whole lines of text scroll by above the drawing.

        At once where the terminal keeps up, else with the next drawing; lines that find too many
        others waiting are lost.
        """
        with self._lock:
            if self._output.backlog or self._text:
                if self._text_size < LARGEST_BACKLOG:
                    self._text.append(text)
                    self._text_size += len(text)
            else:
                self._output.write(self._return_to_top(erase=True) + text + self._drawing)

    def leave(self) -> None:
        """Put the cursor below the drawing, which stays."""
        with self._lock:
            text = self._take_text()
            above = self._return_to_top(erase=True) + text + self._drawing if text else ""
            self._output.write(above + "\n")
            self._drawing, self._height = "", 0

    def _take_text(self) -> str:
        text = "".join(self._text)
        self._text.clear()
        self._text_size = 0
        return text

    def _return_to_top(self, *, erase: bool) -> str:
        if not self._height:
            return ""
        up = f"\x1b[{self._height - 1}A" if self._height > 1 else ""
        return f"\r{up}{_ERASE_BELOW if erase else ''}"


class LinesAbove:
    """Stands for a standard stream while a drawing is on the terminal.

    Whatever describes the stream (``isatty``, ``fileno``, ``encoding``, …) is the replaced one's.
    """

    def __init__(self, replaced: TextIO, print_above: Callable[[str], bool]) -> None:
        self._replaced = replaced
        self._print_above = print_above
        self._begun = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Print the lines that are complete; the rest waits for its end.

        What the stream no longer takes once the drawing has ended is lost: it is no error of
        whoever prints.
        """
        with self._lock:
            whole, end, self._begun = (self._begun + text).rpartition("\n")
            if end and not self._print_above(whole + end):
                with contextlib.suppress(OSError, ValueError):
                    self._replaced.write(whole + end)
        return len(text)

    def flush(self) -> None:
        """Nothing waits but a line that has no end yet."""

    def finish(self) -> None:
        """Print a line that never ended."""
        if self._begun:
            self.write("\n")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the stream has it
        return getattr(self._replaced, name)


@contextlib.contextmanager
def standard_streams_above(print_above: Callable[[str], bool]) -> Iterator[None]:
    """Meanwhile, what is printed to a terminal goes above its drawing instead of through it.

    Args:
        print_above: takes whole lines; False where there is no drawing any more.
    """
    replaced: list[tuple[str, LinesAbove, TextIO]] = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not stream.closed and stream.isatty():
            stand_in = LinesAbove(stream, print_above)
            setattr(sys, name, stand_in)
            replaced.append((name, stand_in, stream))
    try:
        yield
    finally:
        for name, stand_in, stream in replaced:
            if getattr(sys, name) is stand_in:
                setattr(sys, name, stream)
            stand_in.finish()
