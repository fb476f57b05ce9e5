"""Declares every command of ``drivetrain``; imports click alone (see the package's words)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from drivetrain_operator.cli.plugins import load_plugin, plugin_help, plugin_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

PROGRAM: Final = "drivetrain"
STATE_DIRECTORY: Final = ".drivetrain"
_HELP: Final = {"help_option_names": ["-h", "--help"]}

Command = TypeVar("Command", bound="Callable[..., Any]")


class Commands(click.Group):
    """Our own commands, and those of installed packages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Ours in the order of a run's life, then the others by name."""
        del ctx
        return [*self.commands, *(name for name in plugin_names() if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Ours first: an installed package cannot take their names."""
        return super().get_command(ctx, cmd_name) or load_plugin(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing those of others."""
        rows = []
        for name in self.list_commands(ctx):
            ours = self.commands.get(name)
            text = plugin_help(name) if ours is None else str(ours.help).partition("\n")[0]
            rows.append((name, text.rstrip(".")))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _examples(*lines: str) -> str:
    """Text below a command's help, its lines kept as they are."""
    return "\n".join(
        ["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {x}" for x in lines)]
    )


@click.group(
    cls=Commands,
    context_settings=_HELP,
    epilog=_examples(
        "drivetrain run --algo sac --task inverted_double_pendulum",
        "drivetrain run -f run.yaml algo.batch_size=512",
    ),
)
@click.version_option(package_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    """Train robot policies: a manifest in, a trained policy and an honest status out."""


def _complete(name: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completion by the function `name` of `completion`, imported when a shell asks."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del param
        from drivetrain_operator.cli import completion  # noqa: PLC0415 - keeps --help fast

        if name == "runs":
            return completion.runs(ctx.params.get("state_dir") or STATE_DIRECTORY, incomplete)
        found: list[CompletionItem] = getattr(completion, name)(incomplete)
        return found

    return complete


def _manifest_options(command: Command) -> Command:
    """Options from which a manifest is made on the way."""
    for option in (
        click.option("--name", metavar="NAME", help="Name of the run.  [default: <task>-<algo>]"),
        click.option("--sim", shell_complete=_complete("simulators"), help="Physics backend."),
        click.option("--task", shell_complete=_complete("tasks"), help="Task to solve."),
        click.option("--algo", shell_complete=_complete("algorithms"), help="Algorithm."),
    ):
        command = option(command)
    return command


_state_option = click.option(
    "--state-dir",
    default=STATE_DIRECTORY,
    show_default=True,
    envvar="DRIVETRAIN_STATE_DIR",
    show_envvar=True,
    type=click.Path(file_okay=False),
    help="Where runs, their status and their logs are kept.",
)
_overrides_argument = click.argument(
    "overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=_complete("overrides")
)


@cli.command(
    epilog=_examples(
        "drivetrain run -f run.yaml",
        "drivetrain run --algo sac --task half_cheetah --sim mujoco algo.num_envs=64",
    )
)
@click.option("-f", "--file", type=click.Path(), help="Manifest of the run; - reads stdin.")
@_manifest_options
@_state_option
@click.option("--fresh", is_flag=True, help="Start over, whatever is stored under that name.")
@click.option(
    "--output",
    type=click.Choice(["yaml", "none"]),
    default="yaml",
    show_default=True,
    help="How the status is printed at the end.",
)
@_overrides_argument
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    file: str | None,
    state_dir: str,
    fresh: bool,
    output: str,
    **parts: Any,  # noqa: ANN401 - the options that make a manifest
) -> None:
    """Train on this machine until the run is over.

    Ctrl-C stops it at a checkpoint, and the same command goes on from there; a second Ctrl-C
    kills it. Exits with 0 when the run is complete, 1 when it failed, 2 when it is refused
    and 130 when it was stopped. The variable DRIVETRAIN_LAUNCHER takes the place of the pods'
    command, to wrap it in a profiler for instance.
    """
    _need_one_source(ctx, file, parts)
    from drivetrain_operator.cli import run as running  # noqa: PLC0415 - keeps --help fast
    from drivetrain_operator.cli.making import Request  # noqa: PLC0415 - likewise

    options = running.Options(Path(state_dir), fresh=fresh, yaml=output == "yaml")
    ctx.exit(running.run(Request(file=file, **parts), options))


def _need_one_source(ctx: click.Context, file: str | None, parts: dict[str, Any]) -> None:
    made = [f"--{key}" for key in ("algo", "task", "sim") if parts[key] is not None]
    if file is not None and made:
        raise click.UsageError(
            f"-f excludes {', '.join(made)}: put key=value behind it, such as task.name=ant", ctx
        )
    if file is None and not {"--algo", "--task"} <= set(made):
        raise click.UsageError("give -f FILE, or both --algo and --task", ctx)


@cli.command(
    epilog=_examples(
        "drivetrain new --algo sac --task half_cheetah training.total_env_steps=100000 -o run.yaml"
    )
)
@_manifest_options
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@_overrides_argument
@click.pass_context
def new(
    ctx: click.Context,
    /,
    *,
    output: Path | None,
    force: bool,
    **parts: Any,  # noqa: ANN401 - the options that make a manifest
) -> None:
    """Write a manifest, checked, to standard output or a file."""
    _need_one_source(ctx, None, parts)
    from drivetrain_operator.cli import manifests  # noqa: PLC0415 - keeps --help fast
    from drivetrain_operator.cli.making import Request  # noqa: PLC0415 - likewise

    manifests.new(Request(**parts), output, force=force)


@cli.command(epilog=_examples("drivetrain validate -f run.yaml -f other.yaml"))
@click.option(
    "-f", "--file", "files", multiple=True, required=True, type=click.Path(), help="Manifest."
)
@click.pass_context
def validate(ctx: click.Context, /, *, files: tuple[str, ...]) -> None:
    """Check manifests, and say what is wrong with each.

    Tasks that a manifest names by entryPoint are imported. Exits with 2 where one is refused.
    """
    from drivetrain_operator.cli import manifests  # noqa: PLC0415 - keeps --help fast

    ctx.exit(manifests.validate(files))


@cli.command(epilog=_examples("drivetrain status", "drivetrain status half-cheetah-sac -o yaml"))
@click.argument("name", required=False, shell_complete=_complete("runs"))
@_state_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "yaml"]),
    default="table",
    show_default=True,
    help="Form.",
)
def status(*, name: str | None, state_dir: str, output: str) -> None:
    """Show the runs of this machine, or one in full."""
    from drivetrain_operator.cli import inspect  # noqa: PLC0415 - keeps --help fast

    inspect.status(Path(state_dir), name, yaml=output == "yaml")


@cli.command(epilog=_examples("drivetrain crd | kubectl apply --server-side -f -"))
def crd() -> None:
    """Print the CustomResourceDefinition of TrainingRun."""
    from drivetrain_api.crd import render  # noqa: PLC0415 - keeps --help fast

    click.echo(render(), nl=False)


@cli.command(epilog=_examples("drivetrain version"))
def version() -> None:
    """Print the version."""
    from drivetrain_api import __version__  # noqa: PLC0415 - likewise

    click.echo(__version__)


@cli.command(epilog=_examples('eval "$(drivetrain completion bash)"'))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the code that completes commands, tasks and settings in a shell."""
    from drivetrain_operator.cli.completion import script  # noqa: PLC0415 - keeps --help fast

    click.echo(script(cli, PROGRAM, shell))


def main() -> None:
    """Run the command line; Ctrl-C outside of a run's own handling exits with 130."""
    try:
        code = cli.main(prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
