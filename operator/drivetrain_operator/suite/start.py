"""From a suite file to members that run: check all, match it with what is there, drive, sum up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from drivetrain_api.artifacts.suite_record import SUITE_RECORD, MemberState, SuiteBackend
from drivetrain_api.exit_codes import ExitCode
from drivetrain_operator.cli import preflight
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.cli.table import table
from drivetrain_operator.cli.terminal import INTERRUPTED, say
from drivetrain_operator.kubectl.session import run as on_cluster
from drivetrain_operator.local.store import LocalStore
from drivetrain_operator.suite import local
from drivetrain_operator.suite.display import Board, lines_of, reasons
from drivetrain_operator.suite.place import place_of, refuse_elsewhere
from drivetrain_operator.suite.plan import check, outline
from drivetrain_operator.suite.record_file import RecordKeeper, held, load_record, set_aside
from drivetrain_operator.suite.slots import local_settings, slots_for
from drivetrain_operator.suite.standing import Standing, refuse_changed_runs, stand
from drivetrain_operator.suite.suite_file import load
from drivetrain_operator.suite.validation import prune_timings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drivetrain_api.artifacts.suite_record import SuiteCluster, SuiteMember, SuiteRecord
    from drivetrain_operator.kubectl.session import Connection, Session
    from drivetrain_operator.suite.display import Figures
    from drivetrain_operator.suite.plan import Checked
    from drivetrain_operator.suite.standing import FoundRun
    from drivetrain_operator.suite.suite_file import SuiteFile

_PLAN: Final = ("MEMBER", "VARIANT", "SEED", "STATE", "DIRECTORY")


@dataclass(frozen=True)
class Options:
    """How the suite is driven."""

    file: str
    state: Path
    fresh: bool
    retry_failed: bool
    dry_run: bool
    at_once: int
    """Members at once."""


@dataclass(frozen=True)
class There:
    """Where members run, and what is there of them."""

    backend: SuiteBackend
    record: SuiteRecord | None
    """Of the start that is gone on with."""
    runs: Mapping[str, FoundRun]
    cluster: SuiteCluster | None = None
    """Which one; None on this machine."""

    @property
    def namespace(self) -> str | None:
        """Of the members' manifests."""
        return self.cluster.namespace if self.cluster is not None else None


@dataclass(frozen=True)
class Prepared:
    """A suite that may start."""

    file: SuiteFile
    root: Path
    standing: Standing
    checked: tuple[Checked, ...]

    @property
    def record(self) -> SuiteRecord:
        """What will be written first."""
        return self.standing.record

    @property
    def remaining(self) -> tuple[Checked, ...]:
        """Members that are still to run, or to go on."""
        return tuple(c for c in self.checked if not c.member.state.over)


def start_local(options: Options) -> int:
    """Run the suite on this machine; gives the exit code.

    Raises:
        Refusal: before anything was started.
        click.ClickException: the machine stopped it, such as a full disk.
    """
    file, root = load(options.file), Path.cwd()
    root = root / file.suite.root
    members = outline(file)
    store, board = LocalStore(options.state.absolute()), Board()
    if options.dry_run:
        return _show_plan(_prepare_local(options, file, root, members, store))
    with held(root):
        _wait_for_driven(options, store, members, board)
        prepared = _prepare_local(options, file, root, members, store)
        settings = local_settings()
        machine = preflight.Machine.here(settings)
        remaining = prepared.remaining
        if remaining:
            slots = slots_for(
                file,
                remaining,
                Path.cwd(),
                count=options.at_once,
                settings=settings,
                machine=machine,
            )
            suite = local.LocalSuite(
                keeper=_opened(prepared, fresh=options.fresh),
                members={checked.member.name: checked for checked in prepared.checked},
                stale=set(prepared.standing.stale),
                store=store,
                folder=store.root / "suites" / file.name,
                root=root,
                slots=slots,
                board=board,
            )
            for note in slots.notes:
                say(note, fg="yellow")
            try:
                asyncio.run(suite.drive())
            except (OSError, ValueError) as error:
                raise click.ClickException(f"the suite stopped: {error}") from None
            return _end(file, suite.keeper.members, suite.figures, stopped=suite.interrupted)
        _opened(prepared, fresh=options.fresh)
        figures = local.stored_figures(store, members)
    say(f"suite {file.name!r} is over already; --retry-failed and --fresh start members again")
    return _end(file, prepared.record.members, figures)


def start_on_cluster(options: Options, connection: Connection) -> int:
    """Run the suite as TrainingRuns; gives the exit code.

    Raises:
        Refusal: before anything was started.
        Failure: the cluster cannot be reached, or refuses.
    """
    file = load(options.file)
    members = outline(file)
    root = Path.cwd() / file.suite.root
    named = replace(connection, namespace=connection.namespace or file.suite.metadata.namespace)

    async def work(session: Session) -> int:
        # The Kubernetes client behind it takes half a second to import.
        from drivetrain_operator.suite import cluster, cluster_runs  # noqa: PLC0415

        here, record = place_of(session), _begun(options, root)
        if record is not None:
            refuse_elsewhere(file, record, here)
        found = await cluster_runs.found_runs(session, members)
        there = There(SuiteBackend.CLUSTER, record, found, here)
        prepared = _prepare(options, file, root, members, there)
        await cluster_runs.rehearse(session, file, prepared.remaining)
        warning = cluster_runs.storage_warning(prepared.checked)
        if warning is not None:
            say(warning, fg="yellow")
        if options.dry_run:
            return _show_plan(prepared)
        suite = cluster.ClusterSuite(
            session=session,
            keeper=_opened(prepared, fresh=options.fresh),
            members={checked.member.name: checked for checked in prepared.checked},
            stale=set(prepared.standing.stale),
            suite=file.name,
            at_once=options.at_once,
            board=Board(),
        )
        await suite.drive()
        return _end(file, suite.keeper.members, suite.figures)

    if options.dry_run:
        return on_cluster(named, work)
    with held(root):
        return on_cluster(named, work)


def _prepare_local(
    options: Options,
    file: SuiteFile,
    root: Path,
    members: Sequence[SuiteMember],
    store: LocalStore,
) -> Prepared:
    found = local.found_runs(store, members, Path.cwd())
    there = There(SuiteBackend.LOCAL, _begun(options, root), found)
    prepared = _prepare(options, file, root, members, there)
    unproven = local.without_proof(root, prepared.checked)
    if not unproven:
        return prepared
    for name, why in unproven.items():
        say(f"{name} counts as complete no longer, and starts over: {why}", fg="yellow")
    back = {"state": MemberState.PENDING, "reason": None}
    checked = tuple(
        replace(c, member=c.member.model_copy(update=back)) if c.member.name in unproven else c
        for c in prepared.checked
    )
    record = prepared.record.model_copy(update={"members": tuple(c.member for c in checked)})
    stale = prepared.standing.stale | (unproven.keys() & found.keys())
    return replace(prepared, checked=checked, standing=Standing(record, frozenset(stale)))


def _prepare(
    options: Options,
    file: SuiteFile,
    root: Path,
    members: Sequence[SuiteMember],
    there: There,
) -> Prepared:
    standing = stand(
        file,
        members,
        there.record,
        there.runs,
        backend=there.backend,
        cluster=there.cluster,
        fresh=options.fresh,
        retry_failed=options.retry_failed,
        now=datetime.now(UTC).replace(microsecond=0),
    )
    invocation = standing.record.invocation
    checked = check(file, standing.record.members, invocation, there.namespace)
    if there.record is None:
        refuse_changed_runs(file, checked, there.runs, invocation)
    return Prepared(file, root, standing, checked)


def _begun(options: Options, root: Path) -> SuiteRecord | None:
    """The record of the start that is gone on with, if one is."""
    return None if options.fresh else load_record(root)


def _opened(prepared: Prepared, *, fresh: bool) -> RecordKeeper:
    """The record, written; what an earlier invocation left is out of the way.

    Raises:
        Refusal: the disk does not take it.
    """
    root, record = prepared.root, prepared.record
    if fresh:
        paths = (SUITE_RECORD, *(member.run_directory for member in record.members))
        try:
            kept = [aside for path in paths if (aside := set_aside(root / path)) is not None]
        except OSError as error:
            raise Refusal([f"what is there cannot be set aside: {error}"]) from None
        if kept:
            say(f"what is there of the suite is kept in {len(kept)} hidden paths: {kept[0]}...")
    keeper = RecordKeeper(root, record)
    try:
        keeper.save()
    except OSError as error:
        raise Refusal([f"{keeper.path} cannot be written: {error.strerror}"]) from None
    on_cluster_too = record.backend is SuiteBackend.CLUSTER
    prune_timings(root, prepared.checked, record.invocation, running=on_cluster_too)
    return keeper


def _wait_for_driven(
    options: Options, store: LocalStore, members: Sequence[SuiteMember], board: Board
) -> None:
    driven = [m.name for m in members if store.holder(m.name) is not None]
    if driven and options.fresh:
        lines = [f"{name} is driven already by {store.holder(name)}" for name in driven]
        raise Refusal(lines, "--fresh would take its files away: stop it first")
    asyncio.run(local.await_driven(store, members, board))


def _show_plan(prepared: Prepared) -> int:
    """Print what would be done."""
    rows = [
        (
            m.name,
            m.variant,
            str(m.seed),
            str(m.state),
            f"{prepared.file.suite.root}/{m.run_directory}",
        )
        for m in prepared.record.members
    ]
    for line in table(_PLAN, rows, right=("SEED",)):
        click.echo(line)
    count = len(prepared.remaining)
    say(f"{len(rows)} members are fine; {count} would be started or go on")
    return int(ExitCode.DONE)


def _end(
    file: SuiteFile,
    members: Sequence[SuiteMember],
    figures: Mapping[str, Figures],
    *,
    stopped: bool = False,
) -> int:
    """Print the summary; gives the exit code."""
    for line in lines_of(members, figures):
        click.echo(line)
    for line in reasons(members):
        click.echo(line)
    if any(member.state is MemberState.COMPLETE for member in members):
        click.echo(f"drivetrain compare {file.suite.root}")
    if stopped:
        say("stopped; the same command goes on", bold=True)
        return INTERRUPTED
    if any(member.state is MemberState.FAILED for member in members):
        say("--retry-failed starts failed members once more")
    complete = all(member.state is MemberState.COMPLETE for member in members)
    return int(ExitCode.DONE if complete else ExitCode.FAILED)
