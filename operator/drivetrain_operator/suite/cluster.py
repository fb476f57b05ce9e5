"""The suite on a cluster: labelled TrainingRuns, so many of them in flight at most."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog

from drivetrain_api import labels
from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_api.status import Phase
from drivetrain_operator.cluster.client import Method
from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    InvalidError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)
from drivetrain_operator.cluster.reflector import Reflector
from drivetrain_operator.cluster.resources import TRAINING_RUNS
from drivetrain_operator.kubectl.runs import Run, now
from drivetrain_operator.reconcile.fields import mapping
from drivetrain_operator.suite.cluster_runs import RunSet, create, found_of, state_of
from drivetrain_operator.suite.display import UNKNOWN, figures_of
from drivetrain_operator.suite.reasons import reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.artifacts.suite_record import SuiteMember
    from drivetrain_operator.kubectl.session import Session
    from drivetrain_operator.suite.display import Board, Figures
    from drivetrain_operator.suite.plan import Checked
    from drivetrain_operator.suite.record_file import RecordKeeper

LOOK_SECONDS: Final = 1.0
"""Between two looks where nothing happens."""
AGAIN_SECONDS: Final = 5.0
"""Before a request that the server had no time for is sent again."""


@dataclass
class ClusterSuite:
    """Drives the members of a suite.

    Attributes:
        session: The connection.
        keeper: The record; its lock is held.
        members: Members by name, checked.
        stale: Names whose TrainingRun is deleted before the member starts.
        suite: The suite's name.
        at_once: TrainingRuns in flight at most.
        board: Where a person is told.
    """

    session: Session
    keeper: RecordKeeper
    members: Mapping[str, Checked]
    stale: set[str]
    suite: str
    at_once: int
    board: Board
    _set: RunSet = field(default_factory=RunSet)
    _again_at: float = 0.0
    _told: str = ""

    async def drive(self) -> None:
        """Create what is not there yet, and follow all until nothing is in flight.

        Raises:
            ApiError: the server refuses us; what was created goes on.
        """
        # Watches that break and are taken up again are no news for a person.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
        reflector = Reflector(
            self.session.cluster,
            TRAINING_RUNS,
            self._set,
            namespaces=(self.session.namespace,),
            label_selector=f"{labels.SUITE}={self.suite}",
        )
        following = asyncio.create_task(reflector.run())
        try:
            await self._synced(reflector)
            while await self._pass():
                self._tell(reflector.trouble)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._set.changed.wait()
                self._set.changed.clear()
        except asyncio.CancelledError:
            self.board.close()
            flying = sum(m.state is MemberState.RUNNING for m in self.keeper.members)
            self.board.note(
                f"{flying} TrainingRun(s) go on in the cluster; the same command creates the others"
            )
            raise
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
        self.board.close()

    @property
    def figures(self) -> Mapping[str, Figures]:
        """What members report."""
        at = now()
        return {
            name: figures_of(run.status, at) if name not in self.stale else UNKNOWN
            for name, run in self._set.runs.items()
        }

    async def _synced(self, reflector: Reflector) -> None:
        while not reflector.synced.is_set():
            self._tell(reflector.trouble)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await reflector.synced.wait()

    async def _pass(self) -> bool:
        """Take note of what happened, start what may start; whether there is more to do."""
        for member in self.keeper.members:
            await self._follow(member)
        await self._fill()
        self.board.show(self.keeper.members, self.figures)
        states = {member.state for member in self.keeper.members}
        return bool(states & {MemberState.PENDING, MemberState.RUNNING})

    async def _follow(self, member: SuiteMember) -> None:
        if member.name in self.stale or member.state.over:
            return
        run = self._set.runs.get(member.name)
        if run is None and member.state is not MemberState.PENDING:
            run = await self._look_for(member.name)
        if run is not None:
            state = state_of(run)
            waits = run.phase is Phase.PENDING
            reason = run.status.message if waits else reason_of(run.status, state)
            self.keeper.set(member.name, state, reason)

    async def _look_for(self, name: str) -> Run | None:
        """A run that the watch does not show: gone, or newer than the list that it began with."""
        try:
            raw = await self._get(name)
        except NotFoundError:
            self.keeper.set(name, MemberState.FAILED, "was deleted from the cluster")
            return None
        except (UnavailableError, ThrottledError):
            return None  # the next pass asks again
        self._set.put(TRAINING_RUNS, raw)
        return self._set.runs[name]

    async def _get(self, name: str) -> dict[str, Any]:
        return await self.session.cluster.request(
            Method.GET, TRAINING_RUNS, namespace=self.session.namespace, name=name
        )

    async def _fill(self) -> None:
        """Create TrainingRuns while there is room; one that is being replaced takes room."""
        if time.monotonic() < self._again_at:
            return
        for member in self.keeper.members:
            if self._flying() >= self.at_once:
                return
            if member.state is not MemberState.PENDING:
                continue
            try:
                if member.name in self.stale:
                    await self._remove(member.name)
                else:
                    await self._create(member.name)
            except (UnavailableError, ThrottledError) as error:
                self._again_at = time.monotonic() + max(error.retry_after or 0.0, AGAIN_SECONDS)
                self._tell(f"{error}; trying again")
                return

    def _flying(self) -> int:
        return sum(not state_of(run).over and not _held(run) for run in self._set.runs.values())

    async def _remove(self, name: str) -> None:
        """Delete the TrainingRun of an earlier invocation, or a failed one."""
        run = self._set.runs.get(name)
        if run is None:
            self.stale.discard(name)
            await self._create(name)
            return
        if "deletionTimestamp" in mapping(run.raw, "metadata"):
            return
        with contextlib.suppress(NotFoundError):
            await self.session.cluster.request(
                Method.DELETE,
                TRAINING_RUNS,
                namespace=self.session.namespace,
                name=name,
                body={"propagationPolicy": "Foreground", "preconditions": {"uid": run.uid}},
            )

    async def _create(self, name: str) -> None:
        try:
            made = await create(self.session, self.members[name])
        except AlreadyExistsError:
            await self._adopt(name)
        except InvalidError as error:
            causes = "; ".join(f"{c.field}: {c.message}" for c in error.causes) or error.message
            self.keeper.set(name, MemberState.FAILED, f"refused: {causes}")
        else:
            self._set.put(TRAINING_RUNS, made)
            self.keeper.set(name, MemberState.RUNNING)

    async def _adopt(self, name: str) -> None:
        """An earlier request may have been carried out though its answer was lost."""
        raw = await self._get(name)
        found = found_of(Run.readable(raw))
        if found.suite == self.suite and found.invocation == self.keeper.record.invocation:
            self._set.put(TRAINING_RUNS, raw)
            self.keeper.set(name, MemberState.RUNNING)
        else:
            words = "a TrainingRun of that name is there that is not of this suite"
            self.keeper.set(name, MemberState.FAILED, words)

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._told:
            self.board.note(trouble, fg="yellow")
        self._told = trouble


def _held(run: Run) -> bool:
    return run.phase is Phase.SUSPENDED
