"""When the policy is evaluated beside training, and what the result decides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from drivetrain_trainer import stats
from drivetrain_trainer.training.schedule import Every

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from drivetrain_api.training import EvaluatorConfig
    from drivetrain_trainer.evaluation.evaluator import EvaluationResult, Evaluator
    from drivetrain_trainer.training.ranks import Ranks
    from drivetrain_trainer.training.schedule import Cursor

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class EvaluationOutcome:
    """An evaluation, the same on every rank."""

    mean: float
    best: bool
    target_reached: bool


class EvaluationSchedule:
    """Rank 0 evaluates with envs and generator of its own; the others learn the outcome."""

    def __init__(
        self,
        config: EvaluatorConfig,
        *,
        evaluator: Evaluator | None,
        policy: nn.Module,
        ranks: Ranks,
        start_env_steps: int,
        target_env_steps: int,
        best: float | None,
        announce: Callable[[EvaluationResult, Cursor], None],
    ) -> None:
        self._config = config
        self._evaluator = evaluator
        self._policy = policy
        self._ranks = ranks
        self._target_env_steps = target_env_steps
        self._every = Every(config.interval, last=start_env_steps)
        self._first_due = config.eval_before_train and start_env_steps == 0
        self._ended = False
        self.best = -math.inf if best is None else best
        self._announce = announce

    def due(self, env_steps: int) -> bool:
        """Whether this boundary evaluates: at the start if asked, each interval, at the end."""
        if self._first_due:
            return True
        at_end = env_steps >= self._target_env_steps and not self._ended
        return self._config.interval is not None and (self._every.due(env_steps) or at_end)

    def visit(self, cursor: Cursor) -> EvaluationOutcome | None:
        """Evaluate if due."""
        if not self.due(cursor.env_steps):
            return None
        self._first_due = False
        self._ended = cursor.env_steps >= self._target_env_steps
        self._every.done(cursor.env_steps)
        mean = math.nan
        if self._evaluator is not None:
            result = self._evaluate(self._evaluator)
            mean = result.mean
            log.info(
                "evaluated",
                env_steps=cursor.env_steps,
                mean=mean,
                sd=result.sd,
                episodes=len(result.returns),
                seconds=round(result.seconds, 2),
            )
            self._announce(result, cursor)
        (mean,) = self._ranks.broadcast([mean])
        best = mean > self.best
        self.best = max(self.best, mean)
        target = self._config.target
        return EvaluationOutcome(mean, best, target is not None and mean >= target)

    def _evaluate(self, evaluator: Evaluator) -> EvaluationResult:
        """Evaluate, and record the episodes under ``eval-rollout/``."""
        with stats.record_timing("evaluation"), stats.workflow(stats.Workflow.EVALUATION):
            result = evaluator.evaluate(self._policy)
            tracker = stats.get(stats.stat_scope())
            for total, length in zip(result.returns, result.lengths, strict=True):
                tracker.scalar(reward=total, episode_length=length)
            tracker.scalar(reward_sd=result.sd)
        return result
