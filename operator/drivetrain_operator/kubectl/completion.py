"""Completion in the shell: of `kubectl drivetrain` by kubectl itself, and of the bare program.

kubectl asks a program `kubectl_complete-drivetrain` on the PATH: its arguments are the words
so far; it prints one proposal a line and last a directive, as Cobra programs do.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem, ShellComplete

from drivetrain_operator.kubectl.session import Connection, Session, run
from drivetrain_operator.reconcile.fields import mapping, text

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE_S: Final = 3.0
"""Seconds that a completion may wait for the API server."""
_NO_FILES: Final = ":4"
"""Cobra's directive: propose no file names instead."""


def run_names(connection: Connection, incomplete: str) -> list[CompletionItem]:
    """Runs whose names begin so, each with its phase; none where the cluster does not answer."""
    from drivetrain_operator.kubectl.runs import all_runs  # noqa: PLC0415 - a cluster's client

    async def names(session: Session) -> list[CompletionItem]:
        async with asyncio.timeout(PATIENCE_S):
            raws = await all_runs(session)
        found = ((text(mapping(raw, "metadata"), "name"), raw) for raw in raws)
        return [
            CompletionItem(name, help=text(mapping(raw, "status"), "phase") or "Pending")
            for name, raw in sorted(found, key=lambda pair: pair[0])
            if name.startswith(incomplete)
        ]

    try:
        return run(connection, names)
    except (click.ClickException, TimeoutError):
        return []


def proposals(command: click.Command, words: Sequence[str]) -> list[str]:
    """Lines for kubectl: what may stand for the last of `words`, after those before it."""
    *before, incomplete = words or [""]
    shell = ShellComplete(command, {}, "kubectl drivetrain", "_UNUSED")
    found = shell.get_completions(list(before), incomplete)
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in found]
    return [*lines, _NO_FILES]


def main() -> None:
    """Answer kubectl."""
    from drivetrain_operator.kubectl.main import cli  # noqa: PLC0415 - it imports this module

    for line in proposals(cli, sys.argv[1:]):
        click.echo(line)
