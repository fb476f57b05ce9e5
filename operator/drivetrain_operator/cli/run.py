"""``drivetrain run``: check, then drive the run on this machine until it ends."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from drivetrain_api import labels
from drivetrain_api.errors import SpecError
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.status import Phase
from drivetrain_operator.cli import preflight
from drivetrain_operator.cli.making import Request, Wanted, make
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.cli.terminal import (
    INTERRUPTED,
    Interrupts,
    TerminalReporter,
    say,
    show_cursor,
)
from drivetrain_operator.local.backend import LeftoverError, LocalBackend
from drivetrain_operator.local.executor import LocalExecutor, RunLostError, utc_now
from drivetrain_operator.local.lock import RunLockedError
from drivetrain_operator.local.node import LocalNode, Place
from drivetrain_operator.local.settings import ENV_LAUNCHER, LAUNCHER, LocalSettings
from drivetrain_operator.local.store import LocalStore, as_object
from drivetrain_operator.yaml_core import dump

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drivetrain_api.trainingrun import TrainingRun

EXIT_CODES: Final = {
    Phase.COMPLETE: int(ExitCode.DONE),
    Phase.FAILED: int(ExitCode.FAILED),
}
_OVERWRITE_HINT: Final = "--fresh starts over, --name NAME makes another run"


@dataclass(frozen=True)
class Options:
    """How to run."""

    state: Path
    fresh: bool
    yaml: bool


def run(request: Request, options: Options) -> int:
    """Run to the end; gives the exit code.

    Raises:
        Refusal: before anything was started.
    """
    wanted = make(request)
    name = wanted.run.metadata.name
    store = LocalStore(options.state.absolute())
    stored = None if options.fresh else _stored(store, name)
    if stored is not None and stored.status.phase in EXIT_CODES:
        say(f"run {name!r} is {stored.status.phase} already; --fresh starts over")
        return _end(stored, options)
    settings = _settings(wanted)
    place = Place(store.folder(name), _storage(stored))
    _check_machine(wanted, place.storage, settings)
    with _locked(store, name):
        if options.fresh:
            store.remove(name)
        applied = _apply(store, wanted, place.storage)
        return _end(_drive(store, applied, place, settings), options)


@contextmanager
def _locked(store: LocalStore, name: str) -> Iterator[None]:
    """Hold the run's lock, or refuse with who does."""
    problem = preflight.unwritable(store.root)
    if problem is not None:
        raise Refusal([f"--state-dir: {store.root} cannot be written to: {problem}"])
    try:
        with store.lock(name):
            yield
    except RunLockedError as error:
        raise Refusal([str(error)], "--name NAME makes another run") from None


def _stored(store: LocalStore, name: str) -> TrainingRun | None:
    try:
        return store.get(name)
    except ValueError as error:
        raise Refusal([str(error)], "--fresh starts over without it") from None


def _settings(wanted: Wanted) -> LocalSettings:
    """Settings from the environment."""
    environment = dict(os.environ)
    if wanted.run.spec.task.entry_point is not None:
        # The task was found from here, so the pods must find it too.
        paths = [str(Path.cwd()), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    launcher = shlex.split(environment.get(ENV_LAUNCHER, "")) or [LAUNCHER]
    return LocalSettings(launcher=tuple(launcher), environment=environment)


def _storage(stored: TrainingRun | None) -> Path:
    """Where the run's files are: where it was begun, else the current directory."""
    begun = stored.metadata.annotations.get(labels.LOCAL_STORAGE) if stored else None
    return Path(begun) if begun else Path.cwd()


def _check_machine(wanted: Wanted, storage: Path, settings: LocalSettings) -> None:
    spec, machine = wanted.composed, preflight.Machine.here(settings)
    found = preflight.violations(spec, wanted.task, storage, machine, settings)
    if found:
        raise wanted.refusal(found)
    ignored = preflight.ignored(wanted.run.spec)
    if ignored:
        say(f"on one machine without effect: {', '.join(ignored)}", dim=True)


def _apply(store: LocalStore, wanted: Wanted, storage: Path) -> TrainingRun:
    try:
        return store.apply(wanted.run, storage=storage, now=datetime.now(UTC))
    except SpecError as error:
        raise wanted.refusal(error.violations, _OVERWRITE_HINT) from None


def _drive(
    store: LocalStore, run: TrainingRun, place: Place, settings: LocalSettings
) -> TrainingRun:
    name = run.metadata.name
    node = LocalNode(
        place,
        run_uid=run.metadata.uid,
        gpu_resource=run.spec.accelerator.resource_name,
        settings=replace(settings, terminal=_panel()),
    )
    backend = LocalBackend(store, name, node, clock=utc_now)
    executor = LocalExecutor(store, name, backend, place, TerminalReporter())

    async def interruptible() -> TrainingRun:
        Interrupts(executor).install()
        return await executor.drive()

    try:
        return asyncio.run(interruptible())
    except (LeftoverError, RunLostError) as error:
        raise click.ClickException(str(error)) from error
    finally:
        show_cursor()


def _panel() -> int:
    """Where pod 0 draws: standard output, unless that is read by a program."""
    return (sys.stdout if sys.stdout.isatty() else sys.stderr).fileno()


def _end(run: TrainingRun, options: Options) -> int:
    """Print the status, and say what it means."""
    if options.yaml:
        click.echo(dump(status_object(run)), nl=False)
    phase = run.status.phase
    if phase in EXIT_CODES:
        return EXIT_CODES[phase]
    progress = run.status.progress
    kept = progress.checkpoint_env_steps if progress is not None else None
    where = "without a checkpoint" if kept is None else f"at {kept} environment steps"
    say(f"suspended {where}; the same command resumes", bold=True)
    return INTERRUPTED


def status_object(run: TrainingRun) -> Mapping[str, object]:
    """The run without its spec, as it is printed at the end."""
    whole = as_object(run)
    metadata = {key: whole["metadata"][key] for key in ("name", "uid")}
    return {**whole, "metadata": metadata, "spec": None}
