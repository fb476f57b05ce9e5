"""The suite on this machine: members one after the other, or several at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drivetrain_api import labels
from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_api.status import Phase
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.cli.terminal import INTERRUPTED
from drivetrain_operator.local.executor import utc_now
from drivetrain_operator.local.store import as_object
from drivetrain_operator.suite.display import UNKNOWN, figures_of
from drivetrain_operator.suite.member_process import MemberProcess, outcome
from drivetrain_operator.suite.reasons import reason_of
from drivetrain_operator.suite.record_file import set_aside
from drivetrain_operator.suite.standing import FoundRun
from drivetrain_operator.suite.validation import doubt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from drivetrain_api.artifacts.suite_record import SuiteMember
    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.local.store import LocalStore
    from drivetrain_operator.suite.display import Board, Figures
    from drivetrain_operator.suite.plan import Checked
    from drivetrain_operator.suite.record_file import RecordKeeper
    from drivetrain_operator.suite.slots import Slots

LOOK_SECONDS: Final = 1.0
"""Between two looks at what members report."""
_STATES: Final = {
    Phase.COMPLETE: MemberState.COMPLETE,
    Phase.FAILED: MemberState.FAILED,
}
_STOPPED_BY: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def found_runs(
    store: LocalStore, members: Iterable[SuiteMember], storage: Path
) -> dict[str, FoundRun]:
    """Stored runs of members' names.

    Raises:
        Refusal: one cannot be read, or its files lie below another folder than `storage`.
    """
    found = {}
    for member in members:
        try:
            run = store.get(member.name)
        except ValueError as error:
            raise Refusal([str(error)], "move the file away to start that member over") from None
        if run is None:
            continue
        begun = run.metadata.annotations.get(labels.LOCAL_STORAGE, str(storage))
        if begun != str(storage):
            words = f"run {member.name} was started in {begun}, and its files are there"
            raise Refusal([words], f"type the command in {begun}")
        found[member.name] = _found(run)
    return found


def _found(run: TrainingRun) -> FoundRun:
    experiment, phase = run.spec.experiment, run.status.phase
    state = _STATES.get(phase, MemberState.SUSPENDED) if phase else MemberState.SUSPENDED
    return FoundRun(
        name=run.metadata.name,
        suite=experiment.suite if experiment is not None else None,
        invocation=experiment.invocation if experiment is not None else None,
        log_dir=run.spec.training.log_dir,
        state=state,
        created=run.metadata.creation_timestamp,
        reason=reason_of(run.status, state),
        spec=as_object(run)["spec"],
    )


def without_proof(root: Path, members: Iterable[Checked]) -> dict[str, str]:
    """Members that count as complete and whose files do not show it: name -> why."""
    found = {}
    for checked in members:
        if checked.member.state is MemberState.COMPLETE:
            why = doubt(root, checked)
            if why is not None:
                found[checked.member.name] = why
    return found


async def await_driven(store: LocalStore, members: Iterable[SuiteMember], board: Board) -> None:
    """Wait for members that children of an earlier command still drive."""
    names = [member.name for member in members]
    told: set[str] = set()
    while driven := [name for name in names if store.holder(name) is not None]:
        for name in sorted(set(driven) - told):
            holder = store.holder(name)
            board.note(f"{name} is driven already by {holder}: waiting for it")
        told.update(driven)
        await asyncio.sleep(LOOK_SECONDS)


@dataclass
class LocalSuite:
    """Drives the members of a suite.

    Attributes:
        keeper: The record; its lock is held.
        members: Members by name, checked.
        stale: Names whose stored run is replaced.
        store: Where runs are.
        folder: For manifests and logs of members.
        root: Root of the suite.
        slots: Places for members.
        board: Where a person is told.
    """

    keeper: RecordKeeper
    members: Mapping[str, Checked]
    stale: set[str]
    store: LocalStore
    folder: Path
    root: Path
    slots: Slots
    board: Board
    _running: dict[str, MemberProcess] = field(default_factory=dict)
    _figures: dict[str, Figures] = field(default_factory=dict)
    _pending: deque[str] = field(default_factory=deque)
    _signals: int = 0
    _trouble: OSError | ValueError | None = None

    async def drive(self) -> None:
        """Run until every member is over, or the user stops it.

        Raises:
            OSError: a member could not be started for the machine's reasons; the others that
                ran were stopped at checkpoints.
        """
        loop = asyncio.get_running_loop()
        for number in _STOPPED_BY:
            loop.add_signal_handler(number, self._interrupt)
        self._pending.extend(m.name for m in self.keeper.members if not m.state.over)
        for member in self.keeper.members:
            self._look_at(member.name)
        watch = asyncio.create_task(self._watch())
        try:
            places = self.slots.environments
            await asyncio.gather(*(self._serve(environment) for environment in places))
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            for number in _STOPPED_BY:
                loop.remove_signal_handler(number)
            self._show()
            self.board.close()
        if self._trouble is not None:
            raise self._trouble

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped it."""
        return self._signals > 0

    @property
    def figures(self) -> Mapping[str, Figures]:
        """What members reported last."""
        return self._figures

    async def _serve(self, environment: Mapping[str, str]) -> None:
        """Run members in one place, one after the other."""
        while self._pending and not self._signals and self._trouble is None:
            name = self._pending.popleft()
            try:
                await self._run(name, environment)
            except (OSError, ValueError) as error:  # the latter: its stored run cannot be read
                self._trouble = error
                self.keeper.set(name, MemberState.PENDING, f"could not be started: {error}")
                self._stop(signal.SIGINT)

    async def _run(self, name: str, environment: Mapping[str, str]) -> None:
        checked = self.members[name]
        fresh = name in self.stale
        if self.store.get(name) is None or fresh:
            # The folder of another run would be refused.
            aside = set_aside(self.root / checked.member.run_directory)
            if aside is not None:
                self.board.note(f"{name}: files of an earlier run are kept in {aside}")
        process = await MemberProcess.start(
            checked,
            folder=self.folder,
            state=self.store.root,
            fresh=fresh,
            environment=environment,
        )
        self.stale.discard(name)
        self._running[name] = process
        self.keeper.set(name, MemberState.RUNNING)
        self._show()
        try:
            code = await process.wait()
        finally:
            del self._running[name]
        ended = outcome(code, self.store.get(name), process.log)
        self.keeper.set(name, ended.state, ended.reason)
        self._look_at(name)
        self._show()

    def _interrupt(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self.board.note("stopping members at checkpoints; once more kills them at once")
            self._stop(signal.SIGINT)
        elif self._signals == 2:  # noqa: PLR2004 - first, second, any later one
            self.board.note("killed: what was not checkpointed is lost", fg="red")
            self._stop(signal.SIGINT)
        else:
            self._stop(signal.SIGKILL)
            os._exit(INTERRUPTED)

    def _stop(self, number: signal.Signals) -> None:
        for process in self._running.values():
            process.signal(number)

    async def _watch(self) -> None:
        while True:
            for name in list(self._running):
                self._look_at(name)
            self._show()
            await asyncio.sleep(LOOK_SECONDS)

    def _look_at(self, name: str) -> None:
        """Read what a member reports; a file that is just being replaced is read next time."""
        try:
            run = self.store.get(name)
        except (ValueError, OSError):
            return
        known = run is not None and name not in self.stale
        self._figures[name] = figures_of(run.status, utc_now()) if run and known else UNKNOWN

    def _show(self) -> None:
        self.board.show(self.keeper.members, self._figures)


def stored_figures(store: LocalStore, members: Iterable[SuiteMember]) -> dict[str, Figures]:
    """What members of a suite that is over reported last."""
    found = {member.name: store.get(member.name) for member in members}
    now = utc_now()
    return {name: figures_of(run.status, now) for name, run in found.items() if run is not None}
