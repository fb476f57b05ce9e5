"""Settings that are valid and change nothing: told once, when a run starts."""

from __future__ import annotations

from collections.abc import Iterator

from drivetrain_api.errors import Violation
from drivetrain_api.training import WANDB_LOGGER, TrainingConfig, logger_names
from drivetrain_api.trainingrun import TrainingRunSpec


def without_effect(spec: TrainingRunSpec) -> Iterator[Violation]:
    """Keys whose value differs from the default though nothing reads it."""
    training = spec.training
    if WANDB_LOGGER not in logger_names(training.logger):
        reason = f"without effect: training.logger is {training.logger}, not {WANDB_LOGGER}"
        yield from _changed(training, "wandb_", reason)
    if not training.trace_enabled:
        reason = "without effect: training.trace_enabled is false"
        yield from _changed(training, "trace_", reason)
    steps = spec.evaluator.continuation_steps
    if steps is not None and spec.evaluator.threshold is None:
        reason = "without effect: evaluator.threshold is unset, so nothing continues the training"
        yield Violation("evaluator.continuation_steps", reason)


def _changed(training: TrainingConfig, prefix: str, reason: str) -> Iterator[Violation]:
    for name, field in TrainingConfig.model_fields.items():
        if name.startswith(prefix):
            value, default = getattr(training, name), field.get_default(call_default_factory=True)
            if value != default:
                yield Violation(f"training.{name}", reason)
