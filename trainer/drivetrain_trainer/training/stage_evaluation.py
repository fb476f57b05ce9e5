"""The evaluation after training: its own episodes, the same verdict on every rank."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import structlog

from drivetrain_trainer.runtime.faults import StopRequestedError
from drivetrain_trainer.training.evaluation import evaluate_measured

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from drivetrain_trainer.evaluation.evaluator import EvaluationResult, Evaluator
    from drivetrain_trainer.training.ranks import Ranks
    from drivetrain_trainer.training.schedule import Cursor
    from drivetrain_trainer.training.stop import StopSignal

log = structlog.get_logger(__name__)


class StageEvaluator:
    """Rank 0 evaluates, and is not kept from a stop by it; the others learn the outcome."""

    def __init__(
        self,
        *,
        evaluator: Evaluator | None,
        policy: nn.Module,
        ranks: Ranks,
        stop: StopSignal,
        announce: Callable[[EvaluationResult, Cursor], None],
    ) -> None:
        """`evaluator` is rank 0's; `announce` is told of each result there."""
        self._evaluator = evaluator
        self._policy = policy
        self._ranks = ranks
        self._stop = stop
        self._announce = announce

    def run(self, cursor: Cursor) -> float | None:
        """The mean return; None where rank 0 was asked to stop before it was known."""
        mean, interrupted = math.nan, False
        if self._evaluator is not None:
            try:
                mean = self._evaluate(self._evaluator, cursor)
            except StopRequestedError:
                interrupted = True
                log.info("evaluation after training interrupted", env_steps=cursor.env_steps)
        mean, stopped = self._ranks.broadcast([mean, float(interrupted)])
        return None if stopped else mean

    def _evaluate(self, evaluator: Evaluator, cursor: Cursor) -> float:
        result = evaluate_measured(
            evaluator, self._policy, interrupted=lambda: self._stop.requested
        )
        log.info(
            "evaluated after training",
            env_steps=cursor.env_steps,
            mean=result.mean,
            sd=result.sd,
            episodes=len(result.returns),
            seconds=round(result.seconds, 2),
        )
        self._announce(result, cursor)
        return result.mean
