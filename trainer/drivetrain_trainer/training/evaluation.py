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
        stage_follows: bool = False,
    ) -> None:
        """Evaluate beside training.

        Args:
            config: When, and what ends the run.
            evaluator: Rank 0's.
            policy: What is evaluated.
            ranks: All that learn the outcome.
            start_env_steps: Where the training goes on.
            target_env_steps: Where it ends.
            best: Best mean return of earlier attempts.
            announce: Told of each result, on rank 0.
            stage_follows: Whether an evaluation after training makes one at its end idle.
        """
        self._config = config
        self._evaluator = evaluator
        self._policy = policy
        self._ranks = ranks
        self._target_env_steps = target_env_steps
        self._every = Every(config.interval, last=start_env_steps)
        self._first_due = config.eval_before_train and start_env_steps == 0
        self._ended = False
        self._stage_follows = stage_follows
        self.best = -math.inf if best is None else best
        self._announce = announce

    def due(self, env_steps: int) -> bool:
        """Whether this boundary evaluates: at the start if asked, each interval, at the end."""
        if self._first_due:
            return True
        at_end = env_steps >= self._target_env_steps and not self._ended
        if self._stage_follows and env_steps >= self._target_env_steps:
            return False
        return self._config.interval is not None and (self._every.due(env_steps) or at_end)

    def retarget(self, env_steps: int, target_env_steps: int) -> None:
        """Go on at `env_steps`, where the policy was just evaluated, to another end."""
        self._every.done(env_steps)
        self._target_env_steps = target_env_steps
        self._ended = False

    def take(self, mean: float) -> bool:
        """Count an evaluation that was made elsewhere; whether it is the best so far."""
        best = mean > self.best
        self.best = max(self.best, mean)
        return best

    def visit(self, cursor: Cursor) -> EvaluationOutcome | None:
        """Evaluate if due."""
        if not self.due(cursor.env_steps):
            return None
        self._first_due = False
        self._ended = cursor.env_steps >= self._target_env_steps
        self._every.done(cursor.env_steps)
        mean = math.nan
        if self._evaluator is not None:
            result = evaluate_measured(self._evaluator, self._policy)
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
        best = self.take(mean)
        target = self._config.target
        return EvaluationOutcome(mean, best, target is not None and mean >= target)


def evaluate_measured(
    evaluator: Evaluator, policy: nn.Module, *, interrupted: Callable[[], bool] = lambda: False
) -> EvaluationResult:
    """Evaluate, and record the episodes under ``eval-rollout/``.

    Raises:
        StopRequestedError: `interrupted` came true before all episodes were over.
    """
    with stats.record_timing("evaluation"), stats.workflow(stats.Workflow.EVALUATION):
        result = evaluator.evaluate(policy, interrupted=interrupted)
        tracker = stats.get(stats.stat_scope())
        for total, length in zip(result.returns, result.lengths, strict=True):
            tracker.scalar(reward=total, episode_length=length)
        tracker.scalar(reward_sd=result.sd)
    return result
