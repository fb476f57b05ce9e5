"""Which terminal a run gets."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Protocol, TextIO

from drivetrain_trainer.telemetry.terminal.live import LiveTerminal
from drivetrain_trainer.telemetry.terminal.plain import PlainTerminal
from drivetrain_trainer.telemetry.terminal.state import TerminalState

if TYPE_CHECKING:
    from drivetrain_trainer.telemetry.facts import EvaluationFigures, SystemFacts
    from drivetrain_trainer.telemetry.record import Record


class Terminal(Protocol):
    """Shows reduced records to a person; no method raises or blocks on the terminal."""

    def start(self) -> None:
        """Begin to show."""

    def update(self, record: Record) -> None:
        """Take a reduced report."""

    def evaluated(self, evaluation: EvaluationFigures) -> None:
        """Take an evaluation."""

    def retarget(self, env_steps: int) -> None:
        """Count towards another end of the run."""

    def close(self) -> None:
        """Show the last state, and end."""


def make_terminal(facts: SystemFacts, stream: TextIO | None = None) -> Terminal:
    """The live panel on a terminal, plain lines anywhere else.

    `stream` is standard output when unset: logs go to standard error, which is kept in a file
    where the output is a terminal.
    ``NO_COLOR`` is honoured; ``TERM=dumb`` gets plain lines.
    """
    out = stream or sys.stdout
    state = TerminalState(facts)
    if out.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown"):
        return LiveTerminal(state, out)
    return PlainTerminal(state, out)
