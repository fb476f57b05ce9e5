"""Declares ``drivetrain suite``; what it does is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from drivetrain_operator.cli.main import STATE_DIRECTORY
from drivetrain_operator.kubectl.options import connected

if TYPE_CHECKING:
    from drivetrain_operator.kubectl.session import Connection

EXAMPLES: Final = """\b
Examples:
  drivetrain suite -f suite.yaml
  drivetrain suite -f suite.yaml --dry-run
  drivetrain suite -f suite.yaml --parallel 2
  drivetrain suite -f suite.yaml --cluster -n robots --max-in-flight 2
"""


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-f", "--file", required=True, type=click.Path(), help="Suite; - reads stdin.")
@click.option(
    "--parallel",
    type=click.IntRange(1, 256),
    help="Members at once on this machine.  [default: 1]",
)
@click.option("--cluster", is_flag=True, help="As TrainingRuns on a cluster.")
@click.option(
    "--max-in-flight",
    type=click.IntRange(1, 10_000),
    help="TrainingRuns at once on the cluster.  [default: 4]",
)
@click.option("--fresh", is_flag=True, help="Start over, whatever is there of the suite.")
@click.option("--retry-failed", is_flag=True, help="Start members that failed once more.")
@click.option("--dry-run", is_flag=True, help="Check everything, show the members, start none.")
@click.option(
    "--state-dir",
    default=STATE_DIRECTORY,
    show_default=True,
    envvar="DRIVETRAIN_STATE_DIR",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where runs of this machine, their status and their logs are kept.",
)
@connected
@click.pass_context
def suite(
    ctx: click.Context,
    /,
    *,
    connection: Connection,
    file: str,
    parallel: int | None,
    cluster: bool,
    max_in_flight: int | None,
    fresh: bool,
    retry_failed: bool,
    dry_run: bool,
    state_dir: Path,
) -> None:
    """Train every variant of a manifest with several seeds.

    Members run one after the other, each a `drivetrain run` of its own, or as TrainingRuns on
    a cluster. Ctrl-C stops members of this machine at checkpoints, and the same command goes
    on; on a cluster they go on without the command. A member that fails does not stop the
    others. Exits with 0 when every member is complete, 1 when one is not, 2 when the suite is
    refused and 130 when it was stopped.
    """
    from drivetrain_operator.suite.start import (  # noqa: PLC0415 - keeps --help fast
        Options,
        start_local,
        start_on_cluster,
    )

    if cluster and parallel is not None:
        raise click.UsageError("--parallel is for this machine: give --max-in-flight", ctx)
    if not cluster:
        foreign = {
            "--max-in-flight": max_in_flight,
            "--namespace": connection.namespace,
            "--context": connection.context,
            "--kubeconfig": connection.kubeconfig,
        }
        for name, value in foreign.items():
            if value is not None:
                raise click.UsageError(f"{name} is for a cluster: add --cluster", ctx)
    options = Options(
        file=file,
        state=state_dir,
        fresh=fresh,
        retry_failed=retry_failed,
        dry_run=dry_run,
        at_once=(max_in_flight or 4) if cluster else (parallel or 1),
    )
    ctx.exit(start_on_cluster(options, connection) if cluster else start_local(options))
