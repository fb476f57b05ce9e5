"""Tags of what updates compute, in the order in which the update function gives the values."""

from __future__ import annotations

from typing import Final

CRITIC_TAGS: Final = (
    "Loss/critic",
    "Train/critic_gradient_norm",
    "Train/target_q_max",
    "Train/target_q_min",
)
ACTOR_TAGS: Final = (
    "Loss/actor",
    "Loss/temperature",
    "Loss/entropy",
    "Policy/temperature",
    "Policy/mean_std",
    "Train/actor_gradient_norm",
    "Train/global_gradient_norm",
)
