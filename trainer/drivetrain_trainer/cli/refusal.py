"""Refusals of the trainer's commands: one message, exit code 2."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from drivetrain_api.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator


class Refusal(click.ClickException):
    """A command that cannot do what it was asked."""

    exit_code = int(ExitCode.REFUSED)


@contextmanager
def refusing(*errors: type[Exception]) -> Iterator[None]:
    """Turn the errors that a person can mend into a refusal with their message alone."""
    try:
        yield
    except errors as error:
        raise Refusal(str(error)) from error
