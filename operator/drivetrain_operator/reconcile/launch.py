"""Launch the next attempt: decided in the status first, created once nothing else is left.

"Left" is what the watches show. A pod that its watch has yet to show, or that lives on
behind a cut network, is fenced off by its attempt number in the run directory.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from drivetrain_api.status import ConditionType, Reason
from drivetrain_operator.manifests.children import children
from drivetrain_operator.manifests.config import run_json
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.manifests.names import attempt_name
from drivetrain_operator.manifests.storage import claim_in_use
from drivetrain_operator.reconcile.conditions import cleared, condition, normal, warning
from drivetrain_operator.reconcile.context import Transition
from drivetrain_operator.reconcile.decision import Action, Create, DeleteChild
from drivetrain_operator.reconcile.explain import Obstacle, uncreated

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.manifests.settings import Settings
    from drivetrain_operator.reconcile.context import Context
    from drivetrain_operator.reconcile.snapshot import ForeignObject

FOREIGN_RETRY: Final = timedelta(seconds=5)
"""How often a name that another object holds is tried again; often it is being deleted."""


def launch(context: Context) -> Transition | None:
    """The next number, once the last attempt is over, backed off, and gone to the last pod."""
    status = context.status
    if context.spec.suspend or status.is_true(ConditionType.SUSPENDED) or not context.ended:
        return None
    if context.leftovers():
        return None
    if status.next_attempt_at is not None and status.next_attempt_at > context.now:
        return None
    number = _next_number(context)
    begun = context.with_status(
        attempt=number,
        ranks=context.spec.topology.world_size,
        attempt_started_at=context.now,
        job_uid=None,
        progressed_at=None,
        next_attempt_at=None,
        disruption_seen=None,
        started_at=status.started_at or context.now,
        storage=claim_in_use(_run(context)),
    )
    words = f"attempt {number} begins"
    for type_ in (ConditionType.RESTARTING, ConditionType.STALLED):
        begun = cleared(begun, type_, Reason.ATTEMPT_STARTED, words)
    begun = condition(begun, ConditionType.SCHEDULED, Reason.WAITING_FOR_PODS, words, holds=False)
    return Transition(begun.status, normal(Reason.ATTEMPT_STARTED, words))


def _next_number(context: Context) -> int:
    """One more than any number ever used, as far as status and children tell."""
    metas = [
        *(view.meta for view in context.config_maps),
        *(pod.meta for pod in context.pods),
    ]
    return max(context.status.attempt, *(meta.attempt or 0 for meta in metas), 0) + 1


def name_taken(context: Context) -> Transition | None:
    """Say whose name is in the way; the object itself is somebody else's and is left alone."""
    taken = _taken(context)
    if not taken:
        return None
    words = "; ".join(
        f"{found.kind} {found.name} exists and is not this run's: delete or rename it"
        for found in taken
    )
    return _blocked(context, Obstacle(Reason.NAME_TAKEN, words))


def creation_refused(context: Context) -> Transition | None:
    """Say what the API server has against a child; whoever applies tries it again, later each time.

    A taken name is told first: it must be gone before anything else can be tried.
    """
    why = uncreated(context)
    return None if why is None or _taken(context) else _blocked(context, why)


def _blocked(context: Context, why: Obstacle) -> Transition:
    """Scheduled is False for that reason, of which its first sight is worth an Event."""
    told = context.status.condition(ConditionType.SCHEDULED)
    blocked = condition(context, ConditionType.SCHEDULED, why.reason, why.message, holds=False)
    known = told is not None and told.reason == why.reason
    return Transition(blocked.status, None if known else warning(why.reason, why.message))


def _taken(context: Context) -> list[ForeignObject]:
    """Names in the way of the Job, which was never seen."""
    if not context.observed.foreign or not context.awaits_job:
        return []
    names = {(child.kind, child.name) for child in children(_run(context), context.status.attempt)}
    return [found for found in context.observed.foreign if (found.kind, found.name) in names]


def retry_at(context: Context) -> datetime | None:
    """When a taken name is tried again."""
    times = [found.seen_at + FOREIGN_RETRY for found in _taken(context)]
    return max(times, default=None)


def creations(context: Context, settings: Settings) -> tuple[Action, ...]:
    """Create the wanted attempt's children until its Job, the last of them, is seen."""
    attempt = context.wanted
    if attempt is None or not context.awaits_job or context.leftovers(but=attempt):
        return ()
    moment = retry_at(context)
    if moment is not None and moment > context.now:
        return ()
    run = _run(context)
    made = children(run, attempt, settings)
    return (
        *_outdated(context, run, attempt),
        *(Create(child.kind, child.name, child.manifest) for child in made),
    )


def _outdated(context: Context, run: TrainingRun, attempt: int) -> tuple[Action, ...]:
    """The attempt's ConfigMap where the spec was edited before its Job came to be."""
    name = attempt_name(context.run_name, attempt)
    wanted = hashlib.sha256(run_json(run, attempt).encode()).hexdigest()
    found = next((view for view in context.config_maps if view.meta.name == name), None)
    if found is None or found.run_json_sha256 == wanted:
        return ()
    return (DeleteChild(ChildKind.CONFIG_MAP, name, context.uid),)


def _run(context: Context) -> TrainingRun:
    return context.observed.run.with_spec(context.spec)
