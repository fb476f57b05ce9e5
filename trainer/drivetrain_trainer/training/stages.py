"""The stages of a run: what is done, what comes next, and how long its training took.

The state is in every checkpoint, because it speaks of what the parameters went through, and in
the run's summary, because an evaluation is decided on without a checkpoint of its own. Every
rank has the same; rank 0 reads and writes it.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from drivetrain_api.artifacts.stages import RunStages, StageEvaluation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drivetrain_trainer.evidence.run_summary import SummaryWriter
    from drivetrain_trainer.training.inputs import RankInput

CONTINUATION_SHARE: Final = 4
"""The continuation takes one part in so many of the run's length, where it is not told."""


@dataclass(frozen=True)
class StagePlan:
    """What the run's spec wants of its stages."""

    target_env_steps: int
    """Environment steps of the training, over all ranks."""
    episodes: int | None = None
    """Of the evaluation after training; None where there is none."""
    threshold: float | None = None
    """What its mean return must reach, or training is continued once."""
    continuation_env_steps: int = 1
    """Environment steps of that continuation."""

    @classmethod
    def of(cls, given: RankInput) -> Self:
        """The plan of a composed spec."""
        evaluator, target = given.spec.evaluator, given.target_env_steps
        share = max(1, target // CONTINUATION_SHARE)
        return cls(
            target_env_steps=target,
            episodes=evaluator.stage_episodes,
            threshold=evaluator.threshold,
            continuation_env_steps=evaluator.continuation_steps or share,
        )


def resumed(
    plan: StagePlan, *, env_steps: int, kept: RunStages | None, told: RunStages | None
) -> RunStages:
    """Where a run goes on.

    Args:
        plan: What the spec wants now; a run may have been made longer since.
        env_steps: Step of the checkpoint that it goes on from; 0 without one.
        kept: The stages in that checkpoint; None without one, or where it is of another run.
        told: The stages in the run's summary. Newer than the checkpoint where an evaluation of
            just this checkpoint is in it, and of no use otherwise.
    """
    if kept is None:
        return RunStages(target_env_steps=plan.target_env_steps)
    state = kept if told is None else _with_told(kept, told, env_steps)
    return _lengthened(state, plan, env_steps).model_copy(update={"timings_error": None})


def _with_told(kept: RunStages, told: RunStages, env_steps: int) -> RunStages:
    """A checkpoint's stages with what was decided on it after it was written.

    What a summary says of a continuation whose checkpoints are lost is not believed, but that
    there is one: it is trained again from here.
    """
    if kept.continued:
        found, name = told.evaluation_auto_resume, "evaluation_auto_resume"
    else:
        found, name = told.evaluation, "evaluation"
    if found is None or found.env_steps != env_steps:
        return kept
    decided: dict[str, object] = {name: found, "training_over": True}
    if told.continued and not kept.continued:
        decided |= {
            "continued": True,
            "training_over": False,
            "target_env_steps": told.target_env_steps,
        }
    return kept.model_copy(update=decided)


def _lengthened(state: RunStages, plan: StagePlan, env_steps: int) -> RunStages:
    """The state where the spec wants more steps, or fewer, than it did when that was kept.

    What an evaluation decided stands: a continuation is never cut short, nor begun again.
    """
    target = plan.target_env_steps
    if state.continued:
        if target <= state.target_env_steps:
            return state
        later = {"target_env_steps": target, "training_over": False, "evaluation_auto_resume": None}
        return state.model_copy(update=later)
    if target > state.target_env_steps and env_steps < target:
        later = {"target_env_steps": target, "training_over": False, "evaluation": None}
        return state.model_copy(update=later)
    return state.model_copy(update={"target_env_steps": target})


class Stages:
    """Keeps the state, and the time that training takes; every rank has one."""

    def __init__(
        self,
        plan: StagePlan,
        state: RunStages,
        *,
        summary: SummaryWriter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on from `state` (see `resumed`); rank 0 tells `summary` of each change."""
        self.plan = plan
        self._state = state
        self._summary = summary
        self._clock = clock
        self._since: float | None = None
        self._here = 0.0
        """Seconds of training in this attempt, up to the latest stop of the clock."""
        self._tell()

    @property
    def state(self) -> RunStages:
        """As it is now; the time of a training under way counts up to now."""
        running = 0.0 if self._since is None else max(0.0, self._clock() - self._since)
        return self._with_seconds(running)

    @property
    def seconds(self) -> float:
        """Seconds of the training under way, or the last one, over all attempts."""
        state = self.state
        return state.train_auto_resume_seconds if state.continued else state.train_seconds

    @property
    def seconds_here(self) -> float:
        """Seconds of training in this attempt, the continuation included."""
        running = 0.0 if self._since is None else max(0.0, self._clock() - self._since)
        return self._here + running

    @property
    def evaluation(self) -> StageEvaluation | None:
        """Of the training under way, or the last one; None before it."""
        state = self._state
        return state.evaluation_auto_resume if state.continued else state.evaluation

    @contextmanager
    def training(self) -> Iterator[None]:
        """Count the time in here as training."""
        self._since = self._clock()
        try:
            yield
        finally:
            passed = max(0.0, self._clock() - self._since)
            self._here += passed
            self._state, self._since = self._with_seconds(passed), None

    def training_ended(self) -> None:
        """The training under way has reached its end; the next checkpoint will say so."""
        self._change(training_over=True)

    def evaluated(self, env_steps: int, mean_return: float, episodes: int) -> StageEvaluation:
        """Take the evaluation after a training."""
        found = StageEvaluation(
            env_steps=env_steps,
            episodes=episodes,
            mean_return=mean_return,
            threshold=self.plan.threshold,
        )
        name = "evaluation_auto_resume" if self._state.continued else "evaluation"
        self._change(**{name: found})
        return found

    @property
    def continues(self) -> bool:
        """Whether the evaluation missed the threshold, and nothing was continued yet."""
        found = self._state.evaluation
        return not self._state.continued and found is not None and found.missed

    def continue_from(self, env_steps: int) -> int:
        """Begin the one continuation at this step; the step at which it ends."""
        if not self.continues:
            raise RuntimeError("a run is continued once, after a missed threshold")
        target = env_steps + self.plan.continuation_env_steps
        self._change(continued=True, training_over=False, target_env_steps=target)
        return target

    def timings_failed(self, reason: str | None) -> None:
        """Which stages are not in timings.json and why; None where all are."""
        self._change(timings_error=None if reason is None else reason[:1024])

    def write(self) -> None:
        """Have the summary on the disk, with all that was decided."""
        if self._summary is not None:
            self._summary.write()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        self._tell()
        return self.state.model_dump(mode="json")

    def _with_seconds(self, more: float) -> RunStages:
        state = self._state
        name = "train_auto_resume_seconds" if state.continued else "train_seconds"
        return state.model_copy(update={name: getattr(state, name) + more})

    def _change(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)
        self._tell()

    def _tell(self) -> None:
        if self._summary is not None:
            self._summary.note(stages=self.state)
