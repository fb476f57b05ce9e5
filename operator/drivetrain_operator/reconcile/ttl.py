"""Time to live: the children of a finished run go, the run and its claim stay."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drivetrain_operator.reconcile.context import Context


def expires_at(context: Context) -> datetime | None:
    """When the children of a finished run are deleted; None where they are kept."""
    spec, finished = context.observed.run.spec, context.status.finished_at
    if spec is None or finished is None:
        return None
    kept = spec.ttl_seconds_after_finished
    return None if kept is None else finished + timedelta(seconds=kept)


def expired(context: Context) -> bool:
    """Whether that time is over."""
    moment = expires_at(context)
    return moment is not None and moment <= context.now
