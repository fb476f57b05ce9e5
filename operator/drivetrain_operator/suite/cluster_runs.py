"""TrainingRuns of a suite: made, found, and followed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_api.status import Phase
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.cluster.client import Method
from drivetrain_operator.cluster.errors import AlreadyExistsError, InvalidError
from drivetrain_operator.cluster.resources import TRAINING_RUNS
from drivetrain_operator.kubectl.runs import Run, all_runs
from drivetrain_operator.kubectl.suspension import MANAGER
from drivetrain_operator.reconcile.fields import mapping, text
from drivetrain_operator.suite.reasons import reason_of
from drivetrain_operator.suite.standing import FoundRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from drivetrain_api.artifacts.suite_record import SuiteMember
    from drivetrain_operator.cluster.resources import Resource
    from drivetrain_operator.kubectl.session import Session
    from drivetrain_operator.reconcile.fields import Object
    from drivetrain_operator.suite.plan import Checked
    from drivetrain_operator.suite.suite_file import SuiteFile

_WRITE: Final = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
_STATES: Final = {
    Phase.COMPLETE: MemberState.COMPLETE,
    Phase.FAILED: MemberState.FAILED,
    Phase.SUSPENDED: MemberState.SUSPENDED,
}


async def found_runs(session: Session, members: Iterable[SuiteMember]) -> dict[str, FoundRun]:
    """The namespace's TrainingRuns of members' names.

    Raises:
        Failure: the API server serves no TrainingRuns.
    """
    names = {member.name for member in members}
    runs = [Run.readable(raw) for raw in await all_runs(session)]
    return {run.name: found_of(run) for run in runs if run.name in names}


def found_of(run: Run) -> FoundRun:
    """What a TrainingRun tells of itself."""
    experiment = mapping(run.spec, "experiment")
    state = state_of(run)
    return FoundRun(
        name=run.name,
        suite=text(experiment, "suite") or None,
        invocation=text(experiment, "invocation") or None,
        log_dir=text(mapping(run.spec, "training"), "logDir") or None,
        state=state,
        created=run.created_at,
        reason=reason_of(run.status, state),
        spec=run.spec,
    )


def state_of(run: Run) -> MemberState:
    """What a TrainingRun's phase means for the suite."""
    return _STATES.get(run.phase, MemberState.RUNNING)


class RunSet:
    """The suite's TrainingRuns as the watch shows them."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.changed = asyncio.Event()

    def put(self, resource: Resource, obj: Object, /) -> None:
        """One is there."""
        del resource
        run = Run.readable(dict(obj))
        self.runs[run.name] = run
        self.changed.set()

    def delete(self, resource: Resource, obj: Object, /) -> None:
        """One is gone."""
        del resource
        self.runs.pop(text(mapping(obj, "metadata"), "name"), None)
        self.changed.set()

    def sweep(
        self,
        resource: Resource,
        namespace: str | None,
        seen: AbstractSet[tuple[str, str]],
        version: str,
        /,
    ) -> None:
        """These are all."""
        del resource, namespace, version
        names = {name for _, name in seen}
        self.runs = {name: run for name, run in self.runs.items() if name in names}
        self.changed.set()

    def rewind(self) -> None:
        """Nothing rests on versions here."""


async def rehearse(session: Session, file: SuiteFile, members: Sequence[Checked]) -> None:
    """Have the API server judge one member of each variant, and create nothing.

    Raises:
        Refusal: what it refuses, and in which member.
        ApiError: it cannot be asked, or denies us.
    """
    lines = []
    for checked in {c.member.variant: c for c in reversed(members)}.values():
        try:
            await create(session, checked, dryRun="All")
        except AlreadyExistsError:
            continue
        except InvalidError as error:
            causes = [f"{c.field}: {c.message}" for c in error.causes] or [error.message]
            lines += [f"{file.source.source}: member {checked.member.name}: {c}" for c in causes]
    if lines:
        raise Refusal(lines)


async def create(session: Session, checked: Checked, **params: str) -> dict[str, Any]:
    """Create a member's TrainingRun; gives what the server stored.

    Args:
        session: The connection.
        checked: The member.
        params: Query parameters such as ``dryRun``.

    Raises:
        ApiError: the server refuses it, or has no time.
    """
    return await session.cluster.request(
        Method.POST,
        TRAINING_RUNS,
        namespace=session.namespace,
        params={**_WRITE, **params},
        body=checked.document,
    )


def storage_warning(members: Sequence[Checked]) -> str | None:
    """What to know where members do not share a volume."""
    alone = [c.member.name for c in members if c.composed.storage.claim_name is None]
    if not alone:
        return None
    return (
        f"{len(alone)} member(s) have no storage.claimName: each keeps its files on a volume of "
        "its own, so that the suite has no common artifact directories, and comparing it needs "
        "the files in one place"
    )
