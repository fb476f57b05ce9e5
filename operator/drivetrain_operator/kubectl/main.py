"""Declares every command of `kubectl drivetrain`; what they do is imported when they run."""

from __future__ import annotations

from typing import Final

import click

from drivetrain_operator.kubectl.options import (
    Span,
    complete_runs,
    connected,
    form_of,
    formatted,
)
from drivetrain_operator.kubectl.session import Connection, run

PROGRAM: Final = "kubectl drivetrain"
_SHELL_PROGRAM: Final = "kubectl-drivetrain"


def _examples(*lines: str) -> str:
    return "\n".join(["\b", "Examples:", *(f"  {PROGRAM} {line}" for line in lines)])


@click.group(
    name=PROGRAM,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_examples("list -A", "describe half-cheetah-sac", "logs half-cheetah-sac --rank 3 -f"),
)
@click.version_option(package_name="drivetrain", message=f"{PROGRAM} %(version)s")
@connected
@click.pass_context
def cli(ctx: click.Context, *, connection: Connection) -> None:
    """TrainingRuns on a cluster: what they do, why, and what they left."""
    ctx.obj = connection


@cli.command("list", epilog=_examples("list", "list -A", "list -l team=legs -o yaml"))
@click.option("-A", "--all-namespaces", is_flag=True, help="Runs of every namespace.")
@click.option("-l", "--selector", default="", help="Label selector, such as team=legs.")
@formatted
@connected
def list_command(
    *,
    connection: Connection,
    all_namespaces: bool,
    selector: str,
    output: str | None,
) -> None:
    """Show runs in a table.

    Those that wait, restart or have failed are explained below it.
    """
    from drivetrain_operator.kubectl.listing import show_list  # noqa: PLC0415 - on demand

    run(
        connection,
        lambda session: show_list(
            session, every_namespace=all_namespaces, selector=selector, form=form_of(output)
        ),
    )


@cli.command(epilog=_examples("describe half-cheetah-sac"))
@click.argument("name", shell_complete=complete_runs)
@formatted
@connected
def describe(
    *,
    connection: Connection,
    name: str,
    output: str | None,
) -> None:
    """Show one run in full.

    Progress, a timeline of its attempts with the reason for each, pods, artifacts, Events.
    """
    from drivetrain_operator.kubectl.describe import show_description  # noqa: PLC0415 - on demand

    run(
        connection,
        lambda session: show_description(session, name, form_of(output)),
    )


@cli.command(
    epilog=_examples("logs half-cheetah-sac", "logs half-cheetah-sac --rank 3 -f --tail 100")
)
@click.argument("name", shell_complete=complete_runs)
@click.option(
    "-r", "--rank", type=click.IntRange(min=0), default=0, show_default=True, help="Global rank."
)
@click.option("--all-pods", is_flag=True, help="Every pod, each line with the ranks of its pod.")
@click.option("-f", "--follow", is_flag=True, help="Wait for the pod, print until it ends.")
@click.option("--tail", type=click.IntRange(min=0), help="Newest lines only.")
@click.option("--since", type=Span(), help="Only what is newer than this, such as 5m.")
@click.option("--timestamps", is_flag=True, help="With the time of each line.")
@click.option("-c", "--container", default="trainer", show_default=True, help="Container.")
@click.option("--attempt", type=click.IntRange(min=1), help="The current one, or why not.")
@click.option("-p", "--previous-attempt", is_flag=True, help="Tells why that is not possible.")
@connected
def logs(
    *,
    connection: Connection,
    name: str,
    rank: int,
    all_pods: bool,
    follow: bool,
    tail: int | None,
    since: int | None,
    timestamps: bool,
    container: str,
    attempt: int | None,
    previous_attempt: bool,
) -> None:
    """Print the log of a rank's pod.

    Pods of an ended attempt are deleted together with its Job, and their logs with them.
    """
    from drivetrain_operator.kubectl.logs import LogRequest, show_logs  # noqa: PLC0415 - on demand

    wanted = LogRequest(
        rank=rank,
        every_pod=all_pods,
        attempt=attempt,
        previous=previous_attempt,
        container=container,
        follow=follow,
        tail=tail,
        since_s=since,
        timestamps=timestamps,
    )
    run(
        connection,
        lambda session: show_logs(session, name, wanted),
    )


@cli.command(epilog=_examples("suspend half-cheetah-sac --wait"))
@click.argument("names", nargs=-1, required=True, shell_complete=complete_runs)
@click.option("--wait", is_flag=True, help="Until its pods have checkpointed and ended.")
@click.option("--timeout", type=Span(), default="10m", show_default=True, help="Of --wait.")
@connected
def suspend(
    *,
    connection: Connection,
    names: tuple[str, ...],
    wait: bool,
    timeout: int,
) -> None:
    """Stop runs after a checkpoint.

    Their resources are free until they are resumed.
    """
    from drivetrain_operator.kubectl.suspension import set_suspend  # noqa: PLC0415 - on demand

    run(
        connection,
        lambda session: set_suspend(
            session, names, suspend=True, wait_s=float(timeout) if wait else None
        ),
    )


@cli.command(epilog=_examples("resume half-cheetah-sac --wait"))
@click.argument("names", nargs=-1, required=True, shell_complete=complete_runs)
@click.option("--wait", is_flag=True, help="Until its pods run.")
@click.option("--timeout", type=Span(), default="10m", show_default=True, help="Of --wait.")
@connected
def resume(
    *,
    connection: Connection,
    names: tuple[str, ...],
    wait: bool,
    timeout: int,
) -> None:
    """Go on with suspended runs.

    From their last checkpoint, in a new attempt.
    """
    from drivetrain_operator.kubectl.suspension import set_suspend  # noqa: PLC0415 - on demand

    run(
        connection,
        lambda session: set_suspend(
            session, names, suspend=False, wait_s=float(timeout) if wait else None
        ),
    )


@cli.command(epilog=_examples("artifacts half-cheetah-sac", "artifacts half-cheetah-sac -o json"))
@click.argument("name", shell_complete=complete_runs)
@formatted
@connected
def artifacts(
    *,
    connection: Connection,
    name: str,
    output: str | None,
) -> None:
    """List the files that a run left.

    With their sizes, SHA-256 digests, and paths on the run's storage.
    """
    from drivetrain_operator.kubectl.artifacts import show_artifacts  # noqa: PLC0415 - on demand

    run(
        connection,
        lambda session: show_artifacts(session, name, form_of(output)),
    )


@cli.command(epilog=_examples("tensorboard half-cheetah-sac", "tensorboard walk --port 0 --open"))
@click.argument("name", shell_complete=complete_runs)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=6006,
    show_default=True,
    help="Port on this machine; 0 for any that is free.",
)
@click.option("--image", help="Image with TensorBoard; the run's own when not given.")
@click.option("--open", "browser", is_flag=True, help="Open a browser.")
@click.option(
    "--lifetime", type=Span(), default="8h", show_default=True, help="The pod ends after it."
)
@click.option(
    "--timeout", type=Span(), default="5m", show_default=True, help="To wait for the pod."
)
@connected
def tensorboard(
    *,
    connection: Connection,
    name: str,
    port: int,
    image: str | None,
    browser: bool,
    lifetime: int,
    timeout: int,
) -> None:
    """Open TensorBoard on this machine.

    It runs in a pod that reads the run's storage, made for this command and deleted
    when that ends (Ctrl-C).
    """
    from drivetrain_operator.kubectl.tensorboard import (  # noqa: PLC0415 - on demand
        BoardRequest,
        show_board,
    )

    wanted = BoardRequest(port, image, browser, lifetime, timeout)
    run(
        connection,
        lambda session: show_board(session, name, wanted),
    )


@cli.command(epilog=_examples("completion bash"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print shell completion.

    For the bare program kubectl-drivetrain; kubectl's own completion needs none of it.
    """
    from drivetrain_operator.cli.completion import script  # noqa: PLC0415 - on demand

    click.echo(script(cli, _SHELL_PROGRAM, shell))


def main() -> None:
    """Run the command line."""
    cli(prog_name=PROGRAM, complete_var="_KUBECTL_DRIVETRAIN_COMPLETE")
