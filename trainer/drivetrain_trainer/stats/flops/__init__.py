"""Estimated FLOPs of training: a registry of architectures, and published ones.

Model mathematics, not what a device executes: a multiply-add is 2 FLOPs and training is three
times the forward pass (the backward one is about twice it). Left out are recomputation of
activations, the optimizer, elementwise work, softmax and normalisation, vision encoders and
additional multi-token prediction. Every parameter is taken to learn, so the figure is too high
for frozen or low-rank-adapted weights.
"""

from drivetrain_trainer.stats.flops.config import FlopsConfigError, load_model_config
from drivetrain_trainer.stats.flops.registry import (
    FlopsEstimator,
    FlopsFactory,
    batch_flops,
    flops_estimator,
    register_flops_estimator,
)

__all__ = [
    "FlopsConfigError",
    "FlopsEstimator",
    "FlopsFactory",
    "batch_flops",
    "flops_estimator",
    "load_model_config",
    "register_flops_estimator",
]
