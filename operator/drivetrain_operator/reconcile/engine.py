"""The engine: rules in order until none has anything to add, then what follows from it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from drivetrain_api.status import done_of, message_of, phase_of
from drivetrain_operator.manifests.settings import Settings
from drivetrain_operator.reconcile.accept import accept, refusals
from drivetrain_operator.reconcile.context import Context, Rule, Timer, Transition
from drivetrain_operator.reconcile.deadline import (
    active_deadline,
    active_ends,
    pending_deadline,
    pending_ends,
)
from drivetrain_operator.reconcile.decision import Decision, EventRecord
from drivetrain_operator.reconcile.disruption import restart_disrupted
from drivetrain_operator.reconcile.finish import complete, fail_for_good
from drivetrain_operator.reconcile.follow import (
    adopt,
    see_disruption,
    see_job,
    see_pods,
    see_queue,
)
from drivetrain_operator.reconcile.launch import (
    creation_refused,
    creations,
    launch,
    name_taken,
    retry_at,
)
from drivetrain_operator.reconcile.progress import report
from drivetrain_operator.reconcile.restart import backoff_ends, restart_failed
from drivetrain_operator.reconcile.stall import stall, stalls_at
from drivetrain_operator.reconcile.suspend import resume, suspend
from drivetrain_operator.reconcile.teardown import next_overdue, removals
from drivetrain_operator.reconcile.ttl import expires_at

if TYPE_CHECKING:
    from drivetrain_operator.reconcile.snapshot import Observed

RULES: Final[tuple[Rule, ...]] = (
    accept,
    adopt,
    report,
    complete,
    see_job,
    see_disruption,
    fail_for_good,
    suspend,
    restart_disrupted,
    restart_failed,
    active_deadline,
    pending_deadline,
    stall,
    resume,
    launch,
    name_taken,
    creation_refused,
    see_queue,
    see_pods,
)
"""Of an accepted run. The first rule that changes the status wins; then all look again."""

HELD_RULES: Final[tuple[Rule, ...]] = (accept, report, complete)
"""Of a run whose spec is refused: what runs goes on, nothing is decided anew."""

TERMINAL_RULES: Final[tuple[Rule, ...]] = (report,)
"""Of a run that is over: its last words may still arrive, its end stands."""

TIMERS: Final[tuple[Timer, ...]] = (
    backoff_ends,
    retry_at,
    pending_ends,
    active_ends,
    stalls_at,
)
"""Of an accepted run that is not over."""

_PASSES: Final = 32


def reconcile(observed: Observed, now: datetime, settings: Settings | None = None) -> Decision:
    """What must be done about a run, from nothing but what is observed and the time.

    Args:
        observed: the run and everything around it.
        now: the current time, with an offset.
        settings: the administrator's defaults for manifests.
    """
    run = observed.run
    if run.metadata.deletion_timestamp is not None:
        return Decision(run.status)
    now = now.astimezone(UTC)
    context = Context(observed, run.status, now.replace(microsecond=0))
    accepted = not refusals(run)
    context, events = _settled(context, accepted=accepted)
    context = context.with_status(
        phase=phase_of(context.status),
        message=message_of(context.status),
        done=done_of(context.status.progress),
        observed_generation=run.metadata.generation,
    )
    made = creations(context, settings or Settings()) if accepted else ()
    return Decision(
        status=context.status,
        actions=(*removals(context), *made),
        events=events,
        wake_after=_wake_after(context, now, accepted=accepted),
    )


def _settled(context: Context, *, accepted: bool) -> tuple[Context, tuple[EventRecord, ...]]:
    """Apply rules until none changes the status."""
    events: list[EventRecord] = []
    for _ in range(_PASSES):
        hit = _first_hit(context, accepted=accepted)
        if hit is None:
            return context, tuple(events)
        context = Context(context.observed, hit.status, context.now)
        if hit.event is not None:
            events.append(hit.event)
    raise RuntimeError(f"rules do not settle for {context.run_name}: {context.status!r}")


def _first_hit(context: Context, *, accepted: bool) -> Transition | None:
    rules = TERMINAL_RULES if context.terminal else RULES if accepted else HELD_RULES
    verdicts = (rule(context) for rule in rules)
    return next((v for v in verdicts if v is not None and v.status != context.status), None)


def _wake_after(context: Context, now: datetime, *, accepted: bool) -> float | None:
    """Seconds to the next moment that matters, rounded up to where whole seconds show it."""
    timers: list[Timer] = [next_overdue, expires_at]
    if accepted and not context.terminal:
        timers.extend(TIMERS)
    moments = (timer(context) for timer in timers)
    ahead = [math.ceil(m.timestamp()) for m in moments if m is not None and m > context.now]
    return max(min(ahead) - now.timestamp(), 0.0) if ahead else None
