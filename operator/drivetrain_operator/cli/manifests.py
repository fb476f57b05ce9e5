"""``drivetrain new`` and ``drivetrain validate``: manifests, and nothing is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drivetrain_api.exit_codes import ExitCode
from drivetrain_operator.cli.making import Request, make
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.local.files import write_atomic
from drivetrain_operator.local.store import as_object
from drivetrain_operator.yaml_core import dump

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from drivetrain_api.trainingrun import TrainingRun


def new(request: Request, output: Path | None, *, force: bool) -> None:
    """Write the manifest that a request amounts to.

    Raises:
        Refusal: something is wrong with it, or the file exists.
    """
    text = manifest(make(request).run)
    if output is None:
        click.echo(text, nl=False)
        return
    if output.exists() and not force:
        raise Refusal([f"{output} exists"], "--force overwrites it")
    try:
        write_atomic(output, text)
    except OSError as error:
        raise Refusal([f"{output} cannot be written: {error.strerror}"]) from None
    click.echo(f"{output}: drivetrain run -f {output}", err=True)


def manifest(run: TrainingRun) -> str:
    """The run as a manifest: what was set, in the models' order.

    A null that was set stays: it keeps a preset of the task from applying.
    """
    content = {key: value for key, value in as_object(run).items() if key != "status"}
    return dump(content, nulls=True)


def validate(files: Sequence[str]) -> int:
    """Check each file and print the verdicts; gives the exit code."""
    code = ExitCode.DONE
    for file in files:
        try:
            wanted = make(Request(file=file))
        except Refusal as refusal:
            code = ExitCode.REFUSED
            refusal.show()
        else:
            click.echo(f"{file}: ok ({wanted.run.metadata.name})")
    return int(code)
