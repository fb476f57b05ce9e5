"""The live panel: redrawn in place on a fixed clock, left on screen at the end."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, TextIO

import structlog

from drivetrain_trainer.telemetry.terminal.canvas import Canvas, standard_streams_above
from drivetrain_trainer.telemetry.terminal.clock import REDRAW_S, Clock
from drivetrain_trainer.telemetry.terminal.glyphs import glyphs_for
from drivetrain_trainer.telemetry.terminal.layout import Painter
from drivetrain_trainer.telemetry.terminal.model import build
from drivetrain_trainer.telemetry.terminal.output import Output
from drivetrain_trainer.telemetry.terminal.panel import render

if TYPE_CHECKING:
    from drivetrain_trainer.telemetry.facts import EvaluationFigures
    from drivetrain_trainer.telemetry.record import Record
    from drivetrain_trainer.telemetry.terminal.state import TerminalState

FALLBACK_SIZE = (80, 24)
"""Columns and lines where the terminal does not tell."""
UNBOUNDED_LINES = 10_000
"""Height of the last drawing, which may scroll."""
LAST_DRAWING_S = 2.0
"""Seconds that the end of a run waits for a terminal that takes nothing."""

log = structlog.get_logger(__name__)


class LiveTerminal:
    """Redraws the panel at 2 Hz; what is printed meanwhile scrolls above it.

    Neither training nor the redraws wait for the terminal: one that takes nothing (a stopped
    terminal, a slow line) misses drawings until it takes some again, and one that is gone ends
    the panel. Both are warned of once.

    The terminal's size is asked for at every redraw: ranks run in a session of their own, to
    which no terminal sends SIGWINCH.
    """

    def __init__(
        self, state: TerminalState, stream: TextIO, *, interval_s: float = REDRAW_S
    ) -> None:
        self._state = state
        self._stream = stream
        self._glyphs = glyphs_for(stream.encoding, os.environ.get("TERM", ""))
        self._painter = Painter()
        self._size = FALLBACK_SIZE
        self._streams = contextlib.ExitStack()
        self._output: Output | None = None
        self._canvas: Canvas | None = None
        self._behind = False
        self._broken = False
        self._ending = threading.Lock()
        self._clock = Clock(self._tick, period_s=interval_s, name="terminal-panel")

    def start(self) -> None:
        """Draw the panel for the first time and begin to redraw it."""
        try:
            self._stream.flush()
            self._output = Output(self._stream)
            self._canvas = Canvas(self._output)
            self._size = self._poll_size()
            self._streams.enter_context(standard_streams_above(self._print_above))
        except Exception as error:  # noqa: BLE001 - no terminal may stop training, whatever it raises
            self._give_up(error)
            return
        self._clock.start()

    def update(self, record: Record) -> None:
        """Take a reduced report."""
        self._state.update(record)

    def evaluated(self, evaluation: EvaluationFigures) -> None:
        """Take an evaluation."""
        self._state.evaluated(evaluation)

    def retarget(self, env_steps: int) -> None:
        """Count towards another end of the run."""
        self._state.retarget(env_steps)

    def close(self) -> None:
        """Draw the whole panel a last time and leave it on screen."""
        stopped = self._clock.stop()
        output, canvas = self._output, self._canvas
        if not stopped or output is None or canvas is None:
            self._streams.close()
            return
        try:
            if output.drain(LAST_DRAWING_S):
                self._draw(canvas, UNBOUNDED_LINES)
                canvas.leave()
                output.drain(LAST_DRAWING_S)
            self._output = self._canvas = None
            self._streams.close()
            output.close()
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error, output)

    def _tick(self) -> bool:
        output, canvas = self._output, self._canvas
        if output is None or canvas is None:
            return False
        try:
            self._note_pace(self._draw(canvas, None))
            output.drain(REDRAW_S / 2)  # no terminal takes a whole drawing at once
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)
        return self._canvas is not None

    def _draw(self, canvas: Canvas, height: int | None) -> bool:
        columns, lines = self._poll_size()
        # A narrower terminal has wrapped the old panel: its lines cannot be found again.
        narrower = columns < self._size[0]
        drawn = render(build(self._state.snapshot()), columns, height or lines, self._glyphs)
        if not canvas.draw(self._painter.paint(drawn), clear=narrower):
            return False
        self._size = (columns, lines)
        return True

    def _note_pace(self, drawn: bool) -> None:  # noqa: FBT001 - the outcome of a redraw
        if not (drawn or self._behind):
            self._behind = True
            log.warning("the terminal takes no drawing; the panel skips some, training goes on")

    def _print_above(self, text: str) -> bool:
        """On the thread of whoever prints; False where there is no panel to be above of."""
        canvas = self._canvas
        if canvas is None:
            return False
        try:
            canvas.print_above(text)
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)
        return True

    def _poll_size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return FALLBACK_SIZE
        return size if min(size) > 0 else FALLBACK_SIZE

    def _give_up(self, error: Exception, output: Output | None = None) -> None:
        with self._ending:
            output, self._output, self._canvas = output or self._output, None, None
            told, self._broken = self._broken, True
        if output is not None:
            output.abandon()
        self._streams.close()
        if not told:
            text = f"{type(error).__name__}: {error}"
            log.warning("live panel ended; training goes on", error=text)
