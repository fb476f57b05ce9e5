"""The live panel: redrawn in place on a fixed clock, left on screen at the end."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, TextIO

import structlog
from rich.console import Console
from rich.control import Control
from rich.live import Live

from drivetrain_trainer.telemetry.terminal.clock import REDRAW_S, Clock
from drivetrain_trainer.telemetry.terminal.glyphs import glyphs_for
from drivetrain_trainer.telemetry.terminal.model import build
from drivetrain_trainer.telemetry.terminal.panel import PanelRenderable, render

if TYPE_CHECKING:
    from drivetrain_trainer.telemetry.facts import EvaluationFigures
    from drivetrain_trainer.telemetry.record import Record
    from drivetrain_trainer.telemetry.terminal.state import TerminalState

FALLBACK_SIZE = (80, 24)
"""Columns and lines where the terminal does not tell."""
UNBOUNDED_LINES = 10_000
"""Height of the last drawing, which may scroll."""

log = structlog.get_logger(__name__)


class LiveTerminal:
    """Redraws the panel at 2 Hz; what is printed meanwhile scrolls above it.

    Any failure to draw ends the panel, once warned of, and never training. The cursor
    stays visible, so that a killed process leaves a usable terminal.
    """

    def __init__(
        self, state: TerminalState, stream: TextIO, *, interval_s: float = REDRAW_S
    ) -> None:
        self._state = state
        self._stream = stream
        self._glyphs = glyphs_for(stream.encoding, os.environ.get("TERM", ""))
        self._console = Console(file=stream, force_terminal=True, force_jupyter=False)
        self._live = Live(
            console=self._console, auto_refresh=False, vertical_overflow="crop", transient=False
        )
        self._size = FALLBACK_SIZE
        self._drawing = threading.Lock()
        self._broken = False
        self._clock = Clock(self._tick, period_s=interval_s, name="terminal-panel")

    def start(self) -> None:
        """Draw the panel for the first time and begin to redraw it."""
        try:
            self._size = self._console.size = self._poll_size()
            self._live.start()
            self._console.show_cursor()
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

    def close(self) -> None:
        """Draw the whole panel a last time and leave it on screen."""
        if not self._clock.stop() or self._broken:
            return
        try:
            self._draw(UNBOUNDED_LINES)
            self._live.stop()
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)

    def _tick(self) -> bool:
        try:
            self._draw(None)
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)
        return not self._broken

    def _draw(self, height: int | None) -> None:
        with self._drawing:
            columns, lines = self._poll_size()
            if columns < self._size[0]:
                # A narrower terminal has wrapped the old panel: its lines cannot be found again.
                self._console.control(Control.clear(), Control.home())
            self._size = self._console.size = (columns, lines)
            drawn = render(build(self._state.snapshot()), columns, height or lines, self._glyphs)
            self._live.update(PanelRenderable(drawn), refresh=True)

    def _poll_size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return FALLBACK_SIZE
        return size if min(size) > 0 else FALLBACK_SIZE

    def _give_up(self, error: Exception) -> None:
        self._broken = True
        with contextlib.suppress(Exception):  # it is given up: only its redirections had to go
            self._live.stop()
        log.warning("live panel ended; training goes on", error=f"{type(error).__name__}: {error}")
