"""What a command refuses: one line for each violation, exit code 2."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import click

from drivetrain_api.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence


class Refusal(click.ClickException):
    """A request that is refused before anything was started."""

    exit_code = int(ExitCode.REFUSED)

    def __init__(self, lines: Sequence[str], hint: str = "") -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the violations, then what to do about them."""
        for line in self.lines:
            click.secho("error: ", nl=False, err=file is None, fg="red", bold=True, file=file)
            click.echo(line, err=file is None, file=file)
        if self.hint:
            click.echo(self.hint, err=file is None, file=file)
