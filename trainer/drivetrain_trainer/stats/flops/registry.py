"""Which architecture is estimated how, by the ``model_type`` of its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from drivetrain_trainer.stats.flops.config import as_attributes, text_config
from drivetrain_trainer.stats.flops.qwen3_5_moe import qwen3_5_moe
from drivetrain_trainer.stats.flops.qwen3_moe import qwen3_moe

FlopsEstimator: TypeAlias = Callable[[int], float]
"""Valid positions of one sequence -> FLOPs of training on it, forward and backward."""
FlopsFactory: TypeAlias = Callable[[Any], FlopsEstimator]
"""A model configuration (attributes) -> its estimator."""

_FACTORIES: dict[str, FlopsFactory] = {
    "qwen3_moe": qwen3_moe,
    "qwen3_5_moe": qwen3_5_moe,
    "qwen3_5_moe_text": qwen3_5_moe,
}


def register_flops_estimator(model_type: str, factory: FlopsFactory) -> None:
    """Estimate models of `model_type` by `factory` from now on; a known type is replaced.

    Call it in every training process before its engine is made: what a controlling process
    registers does not travel to others.

    Args:
        model_type: ``model_type`` of the configurations.
        factory: Makes an estimator, which takes the length of one sequence, of a configuration.
    """
    if not model_type:
        raise ValueError("model_type is empty: an estimator is found by its name")
    _FACTORIES[model_type] = factory


def flops_estimator(config: object) -> FlopsEstimator | None:
    """The estimator of a model; None for an architecture that nobody registered.

    Looked up by the type of the whole configuration, then by that of its text part, and made
    of the part whose type it was.

    Args:
        config: Attributes or a mapping, with ``model_type``; see also `load_model_config`.

    Raises:
        FlopsConfigError: A preset misses a figure in the configuration.
    """
    model = as_attributes(config)
    for part in (model, text_config(model)):
        factory = _FACTORIES.get(str(getattr(part, "model_type", "")))
        if factory is not None:
            return factory(part)
    return None


def batch_flops(estimator: FlopsEstimator, lengths: Iterable[int]) -> float:
    """Training FLOPs of a batch: the sum over its sequences.

    A packed batch is as many sequences as it holds; attention grows with the square of each,
    so that the length of them all at once would give too much.

    Args:
        estimator: Of one sequence.
        lengths: Valid positions of each sequence.
    """
    return sum((estimator(length) for length in lengths), start=0.0)
