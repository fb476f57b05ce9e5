"""What a person at the terminal sees and does while a run is driven."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

import click

from drivetrain_api.status import Reason
from drivetrain_operator.reconcile.decision import EventType

if TYPE_CHECKING:
    from drivetrain_operator.local.executor import LocalExecutor, PodFailure
    from drivetrain_operator.reconcile.decision import EventRecord

INTERRUPTED: Final = 130
"""Exit code of a run that was stopped from the terminal."""
_QUIET: Final = frozenset({Reason.PODS_RUNNING, Reason.CHECKPOINT_WRITTEN})
"""Events that the live panel shows better."""
_ASKED_BY: Final = {
    signal.SIGINT: "the user at the terminal",
    signal.SIGTERM: "SIGTERM to the command",
    signal.SIGHUP: "the terminal's end",
}


def say(
    text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None
) -> None:
    """A line on standard error; one that nobody can read any more is no reason to stop."""
    with contextlib.suppress(OSError):
        click.secho(text, err=True, fg=fg, bold=bold, dim=dim)


def show_cursor() -> None:
    """Give the cursor back that a panel took: one that was killed could not."""
    if sys.stdout.isatty():
        with contextlib.suppress(OSError):
            click.echo("\x1b[?25h", nl=False)


class TerminalReporter:
    """Tells on standard error what the run's panel does not."""

    def event(self, event: EventRecord) -> None:
        """Print an Event, the routine ones left out."""
        told = event.reason in event.message
        text = event.message if told else f"{event.reason}: {event.message}"
        if event.type is EventType.WARNING:
            say(text, fg="yellow")
        elif event.reason not in _QUIET:
            say(text, dim=True)

    def pod_failed(self, failure: PodFailure) -> None:
        """Print the end of a failed pod's log."""
        say(f"pod {failure.pod} failed with exit code {failure.exit_code} ({failure.reason})")
        if failure.tail.strip():
            say(f"--- the end of {failure.log}", dim=True)
            say(failure.tail.rstrip())
            say("---", dim=True)

    def trouble(self, error: OSError, wait: float) -> None:
        """Print why the run cannot be looked after."""
        say(f"{error}; trying again in {wait:.0f} s", fg="yellow")


class Interrupts:
    """The first signal has the run checkpoint and stop, the second kills it, the third leaves.

    However the command leaves, the executor's guard kills what is left of the pods.
    """

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor = executor
        self.count = 0

    def install(self) -> None:
        """Take over the signals of the running event loop."""
        loop = asyncio.get_running_loop()
        for number in _ASKED_BY:
            loop.add_signal_handler(number, self._interrupt, number)

    def _interrupt(self, number: signal.Signals) -> None:
        self.count += 1
        if self.count == 1:
            say("\nstopping at a checkpoint; once more kills everything at once", bold=True)
            self._executor.suspend(_ASKED_BY[number])
        elif self.count == 2:  # noqa: PLR2004 - first, second, any later one
            say("\nkilled: what was not checkpointed is lost", fg="red", bold=True)
            self._executor.kill()
        else:
            os._exit(INTERRUPTED)
