"""Whether the code that runs is a rollout of training or of an evaluation.

A workflow records under `stat_scope()` and need not know which it is:
``stats.get(stats.stat_scope()).scalar(reward=reward)``.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Workflow(StrEnum):
    """What a workflow runs for; values are names of trackers."""

    ROLLOUT = "rollout"
    """Collecting experience to train on."""
    EVALUATION = "eval-rollout"
    """Judging a policy."""


_workflow: ContextVar[Workflow] = ContextVar("workflow", default=Workflow.ROLLOUT)


def stat_scope() -> str:
    """Name of the tracker that the running workflow records in."""
    return _workflow.get().value


@contextmanager
def workflow(kind: Workflow) -> Iterator[None]:
    """Run the block as `kind`; asyncio tasks begun inside stay so after its end."""
    token = _workflow.set(kind)
    try:
        yield
    finally:
        _workflow.reset(token)
