"""Where a run stands among its stages; in run_summary.json and in each checkpoint.

A run trains, saves, is evaluated where it asks for that, and, where the evaluation misses the
threshold, does the same once more. What is decided stays decided: whoever resumes the run
reads it here.
"""

from __future__ import annotations

from drivetrain_api.artifacts.base import ArtifactModel
from drivetrain_api.base import Finite, Flag, Measure, PositiveInt, StepOffset, Text


class StageEvaluation(ArtifactModel):
    """What an evaluation after training came to."""

    env_steps: StepOffset
    """Environment steps of the policy."""
    episodes: PositiveInt
    """Episodes."""
    mean_return: Finite
    """Mean return over them."""
    threshold: Finite | None = None
    """What the mean return had to reach."""

    @property
    def missed(self) -> bool:
        """Whether there is a threshold, and the mean return is below it."""
        return self.threshold is not None and self.mean_return < self.threshold


class RunStages(ArtifactModel):
    """The stages of a run so far."""

    target_env_steps: StepOffset
    """Environment steps at which the training under way, or the last one, ends."""
    training_over: Flag = False
    """Whether that training has reached its end."""
    train_seconds: Measure = 0.0
    """Seconds in the training loop, over all attempts; of the continuation apart."""
    evaluation: StageEvaluation | None = None
    """The evaluation after training."""
    continued: Flag = False
    """Whether the one continuation has begun."""
    train_auto_resume_seconds: Measure = 0.0
    """Seconds of the continuation in the training loop, over all attempts."""
    evaluation_auto_resume: StageEvaluation | None = None
    """The evaluation after the continuation."""
    timings_error: Text | None = None
    """Which stages are not in timings.json, and why; the training went on without."""

    @property
    def verdict(self) -> StageEvaluation | None:
        """The evaluation that counts: the latest one after training."""
        return self.evaluation_auto_resume or self.evaluation

    @property
    def threshold_missed(self) -> bool | None:
        """Whether that one missed the threshold; None where there is none of the two."""
        verdict = self.verdict
        return None if verdict is None or verdict.threshold is None else verdict.missed
