"""``drivetrain soak``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drivetrain_trainer.cli.refusal import Refusal, refusing

if TYPE_CHECKING:
    from drivetrain_api.soak import Resource
    from drivetrain_trainer.soak.settings import MonitorSettings

EXAMPLES = """\b
Examples:
  drivetrain soak -f run.yaml --duration 1800
  drivetrain soak --stale 60 --max-growth rss=512 -- drivetrain run -f run.yaml --fresh
  drivetrain soak --run-dir logs/mine -o verdict.json -- python train.py
"""
_SECONDS = click.FloatRange(min=0.0, max=2_592_000.0)
_POSITIVE = click.FloatRange(min=0.01, max=2_592_000.0)


def _growth(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[Resource, int]:
    """Limits by resource: `rss=512` in MiB, `fds=64` as a count."""
    from drivetrain_api.soak import Resource  # noqa: PLC0415 - keeps --help fast

    found: dict[Resource, int] = {}
    for value in values:
        name, _, number = value.partition("=")
        if name not in set(Resource) or not number.isascii() or not number.isdecimal():
            known = ", ".join(Resource)
            raise click.BadParameter(
                f"must be RESOURCE=N, RESOURCE one of {known}, N a whole number of MiB "
                f"(of handles for fds and threads); got {value!r}",
                ctx,
                param,
            )
        counted = Resource(name) in (Resource.FDS, Resource.THREADS)
        found[Resource(name)] = int(number) if counted else int(number) << 20
    return found


@click.command(epilog=EXAMPLES, context_settings={"ignore_unknown_options": False})
@click.option("-f", "--file", type=click.Path(), help="Manifest to run; instead of a COMMAND.")
@click.option(
    "--duration", type=_POSITIVE, metavar="SECONDS", help="End it after training so long."
)
@click.option(
    "--sample", type=_POSITIVE, metavar="SECONDS", help="Between two samples.  [default: 5]"
)
@click.option(
    "--start", type=_POSITIVE, metavar="SECONDS", help="Most until the first tick.  [default: 600]"
)
@click.option(
    "--stale", type=_POSITIVE, metavar="SECONDS", help="Most without a tick.  [default: 120]"
)
@click.option(
    "--grace", type=_SECONDS, metavar="SECONDS", help="From SIGTERM to SIGKILL.  [default: 5]"
)
@click.option(
    "--warm-up",
    type=_SECONDS,
    metavar="SECONDS",
    help="Not judged for growth and decay.  [default: 60]",
)
@click.option(
    "--max-growth",
    "limits",
    multiple=True,
    callback=_growth,
    metavar="RESOURCE=N",
    help="Growth to allow: rss, pss, shm, gpu in MiB; fds, threads as a number.",
)
@click.option(
    "--max-decay",
    type=click.IntRange(1, 99),
    metavar="PERCENT",
    help="Throughput that may be lost.  [default: 50]",
)
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Run directory; found by the files that the command opens if left out.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The artifact.  [default: soak_artifact.json in the run directory]",
)
@click.option(
    "--shm-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default="/dev/shm",  # noqa: S108 - the mount itself is meant
    show_default=True,
    help="Where shared-memory files are.",
)
@click.option("--show-output", is_flag=True, help="Print the command's output as it comes.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND]...")
@click.pass_context
def soak(
    ctx: click.Context,
    /,
    *,
    file: str | None,
    command: tuple[str, ...],
    run_dir: Path | None,
    output: Path | None,
    shm_dir: Path,
    show_output: bool,
    **options: Any,  # noqa: ANN401 - the options that make settings
) -> None:
    """Watch a run for leaks, stalls and decay, and judge it.

    COMMAND makes a run directory, as drivetrain run does. Its processes are sampled until they
    end: memory, descriptors, threads, shared memory, GPU memory, ticks and throughput. A run
    that stalls is ended: SIGTERM, then SIGKILL after the grace. With -f the command is
    `drivetrain run -f FILE`, what follows are KEY=VALUE overrides, and the manifest's soak
    section sets what no option does. Exits with 0 where the soak passed, 1 where it failed,
    2 where it is refused and 130 where Ctrl-C ended it; the artifact says why.
    """
    if file is None and not command:
        raise click.UsageError("give -f FILE, or a command behind --", ctx)
    from drivetrain_trainer.cli.soak_command import Request, SoakCommandError, run  # noqa: PLC0415 - keeps --help fast

    with refusing(SoakCommandError):
        settings, arguments = _settings(file, command, options)
        request = Request(
            command=arguments,
            settings=settings,
            run_dir=run_dir,
            output=output,
            shm_dir=shm_dir,
            show_output=show_output,
        )
        sys.exit(run(request))


def _settings(
    file: str | None, command: tuple[str, ...], options: dict[str, Any]
) -> tuple[MonitorSettings, tuple[str, ...]]:
    """Defaults, below the manifest's soak section, below the options; and the command."""
    from dataclasses import replace  # noqa: PLC0415 - keeps --help fast

    from drivetrain_trainer.soak.settings import MonitorSettings  # noqa: PLC0415 - likewise

    base = MonitorSettings()
    if file is not None:
        base = _of_manifest(file, command)
        program = str(Path(sys.argv[0]))
        own = program if Path(program).name == "drivetrain" else "drivetrain"
        command = (own, "run", "-f", file, "--output", "none", *command)
    chosen = {
        f"{name}_s": options[name]
        for name in ("duration", "sample", "start", "stale", "grace", "warm_up")
        if options[name] is not None
    }
    if options["max_decay"] is not None:
        chosen["throughput_decay"] = options["max_decay"] / 100
    limits = {**base.limits, **options["limits"]}
    return replace(base, **chosen, limits=limits), command


def _of_manifest(file: str, overrides: tuple[str, ...]) -> MonitorSettings:
    """The manifest's own wishes; what is wrong with it, `drivetrain run` says better."""
    from drivetrain_trainer.cli.soak_manifest import soak_of  # noqa: PLC0415 - keeps --help fast
    from drivetrain_trainer.soak.settings import MonitorSettings  # noqa: PLC0415 - likewise

    if file == "-":
        raise Refusal("-f -: the manifest is read twice, so it must be a file")
    config = soak_of(Path(file), overrides)
    return MonitorSettings.of(config) if config is not None else MonitorSettings()
