"""`kubectl drivetrain artifacts`: what a run left on its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from drivetrain_operator.cli.figures import NOTHING, size
from drivetrain_operator.cli.table import table
from drivetrain_operator.kubectl.output import Format, rendered
from drivetrain_operator.kubectl.runs import get_run

if TYPE_CHECKING:
    from drivetrain_operator.kubectl.runs import Run
    from drivetrain_operator.kubectl.session import Session

_HEADER: Final = ("NAME", "SIZE", "SHA256", "PATH")
SHORT_DIGEST: Final = 12
"""Digits of a SHA-256 that a summary shows."""


async def show_artifacts(session: Session, name: str, form: Format | None) -> None:
    """Print name, size, SHA-256 and path of each artifact.

    Raises:
        Failure: there is no such run.
    """
    run = await get_run(session, name)
    if form is not None:
        artifacts = [
            artifact.model_dump(mode="json", by_alias=True, exclude_none=True)
            for artifact in run.status.artifacts
        ]
        content = {"storage": run.status.storage, "artifacts": artifacts}
        click.echo(rendered(content, form), nl=False)
        return
    if not run.status.artifacts:
        click.echo(f"{name} reported no artifacts yet: it is {run.phase}", err=True)
        return
    for line in artifact_lines(run, full=True):
        click.echo(line)
    click.echo(f"\n{where(run)}", err=True)


def artifact_lines(run: Run, *, full: bool) -> list[str]:
    """The table; `full` for whole SHA-256s."""
    rows = [
        (
            artifact.name,
            size(artifact.bytes),
            (artifact.sha256 or NOTHING)[: None if full else SHORT_DIGEST],
            artifact.uri,
        )
        for artifact in run.status.artifacts
    ]
    return table(_HEADER, rows, right=("SIZE",))


def where(run: Run) -> str:
    """On what the paths are."""
    if run.status.storage is None:
        return "paths are below the pod's emptyDir: the files are gone once the pod is"
    return f"paths are below the root of PersistentVolumeClaim {run.status.storage}"
