"""Accept or refuse the spec; a refused run is held, not failed: an edit may cure it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.status import ConditionType, Reason
from drivetrain_operator.manifests.overlay_rules import overlay_violations
from drivetrain_operator.reconcile.conditions import condition, warning
from drivetrain_operator.reconcile.context import Transition

if TYPE_CHECKING:
    from drivetrain_api.errors import Violation
    from drivetrain_operator.reconcile.context import Context
    from drivetrain_operator.reconcile.snapshot import RunView


def refusals(run: RunView) -> tuple[Violation, ...]:
    """Everything that is wrong with a run's spec."""
    overlay = run.spec.pod_template if run.spec is not None else None
    return (*run.refusals, *overlay_violations(overlay))


def accept(context: Context) -> Transition:
    """Accepted tells whether the spec can be worked with, and names each refused path."""
    violations = refusals(context.observed.run)
    if not violations:
        valid = condition(context, ConditionType.ACCEPTED, Reason.VALID, holds=True)
        valid = valid.with_status(ranks=context.spec.topology.world_size)
        return Transition(valid.status)
    words = "; ".join(str(violation) for violation in violations)
    refused = condition(context, ConditionType.ACCEPTED, Reason.INVALID_SPEC, words, holds=False)
    old = context.status.condition(ConditionType.ACCEPTED)
    new = refused.status.condition(ConditionType.ACCEPTED)
    told = old is not None and new is not None and old.message == new.message
    return Transition(refused.status, None if told else warning(Reason.INVALID_SPEC, words))
