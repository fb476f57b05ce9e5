"""Algorithm names and their typed configurations; class defaults are the GPU defaults.

Composition puts a task preset over them, then the manifest, then the command line.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from drivetrain_api.base import (
    ApiModel,
    Flag,
    LearningRate,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Probability,
    Seed,
    SignedFloat,
)


class AlgoName(StrEnum):
    """Algorithms a manifest may name."""

    SAC = "sac"
    FLASHSAC = "flashsac"
    APPO = "appo"
    PPO = "ppo"


ALGO_LOG_NAMES: dict[AlgoName, str] = {
    AlgoName.PPO: "rsl_rl_ppo",
    AlgoName.APPO: "appo",
    AlgoName.SAC: "sac",
    AlgoName.FLASHSAC: "flash_sac",
}

AVAILABLE_ALGORITHMS: frozenset[AlgoName] = frozenset({AlgoName.SAC})
"""Algorithms this release trains; the others are refused by name."""


class Precision(StrEnum):
    """Arithmetic of the matrix products; parameters and optimizers stay float32."""

    AUTO = "auto"
    FP32 = "fp32"
    BF16 = "bf16"


class CriticKind(StrEnum):
    """What the twin critics predict."""

    C51 = "c51"
    TWIN_Q = "twin_q"


class Activation(StrEnum):
    """Hidden activation of the multilayer perceptrons."""

    RELU = "relu"
    SILU = "silu"
    ELU = "elu"
    TANH = "tanh"


HiddenSizes = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=65536)], ...],
    Field(min_length=1, max_length=16),
]


class SacConfig(ApiModel):
    """Soft actor-critic; the defaults are the FastSAC-style ones for thousands of envs."""

    name: Literal[AlgoName.SAC] = AlgoName.SAC
    """Which algorithm trains the policy."""
    seed: Seed | None = None
    """Seeds the global Python and Torch generators of a run; the run's seed when unset."""
    num_envs: Annotated[int, Field(strict=True, ge=1, le=1_048_576)] = 4096
    """Environments stepped by a rank's collector."""
    batch_size: Annotated[int, Field(strict=True, ge=1, le=16_777_216)] = 8192
    """Replay rows of one update, per rank."""
    updates_per_step: Annotated[int, Field(strict=True, ge=1, le=1024)] = 4
    """Updates an iteration (an iteration is `training.env_steps_per_sync` ticks)."""
    policy_frequency: Annotated[int, Field(strict=True, ge=1, le=1024)] = 4
    """The actor and the temperature learn on every n-th update."""
    learning_starts: NonNegativeInt = 10
    """Ticks of uniform random actions before the first update, per environment."""
    replay_rows: Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)] = 4_194_304
    """Transitions the replay ring of a rank holds."""
    gamma: Probability = 0.97
    """Discount."""
    tau: Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, le=1)] = 0.125
    """Share of the online critics in each update of the target critics."""
    actor_learning_rate: LearningRate = 3e-4
    """Learning rate of the actor."""
    critic_learning_rate: LearningRate = 3e-4
    """Learning rate of the critics."""
    alpha_learning_rate: LearningRate = 3e-4
    """Learning rate of the entropy temperature."""
    adam_betas: tuple[Probability, Probability] = (0.9, 0.95)
    """Decay rates of AdamW's moments."""
    weight_decay: NonNegativeFloat = 1e-3
    """AdamW's decoupled weight decay of actor and critics."""
    alpha_init: PositiveFloat = 0.01
    """Entropy temperature at the start."""
    alpha_autotune: Flag = True
    """Learn the temperature towards `target_entropy_scale`."""
    target_entropy_scale: NonNegativeFloat = 1.0
    """Target entropy is minus this times the action dimension."""
    actor_hidden: HiddenSizes = (512, 256, 128)
    """Hidden layer sizes of the actor."""
    critic_hidden: HiddenSizes = (768, 384, 192)
    """Hidden layer sizes of each critic."""
    activation: Activation = Activation.SILU
    """Hidden activation of actor and critics."""
    layer_norm: Flag = True
    """LayerNorm after each hidden linear layer."""
    critic: CriticKind = CriticKind.C51
    """Distributional (C51) or plain twin Q critics."""
    num_atoms: Annotated[int, Field(strict=True, ge=2, le=1001)] = 101
    """Atoms of the C51 support."""
    v_min: SignedFloat = -20.0
    """Lowest atom of the C51 support."""
    v_max: SignedFloat = 20.0
    """Highest atom of the C51 support."""
    observation_normalization: Flag = True
    """Normalise observations by their running mean and deviation."""
    max_grad_norm: NonNegativeFloat = 0.0
    """Clip the global gradient norm to this; 0 does not clip."""
    precision: Precision = Precision.AUTO
    """`auto` takes bf16 where the device has the instructions, else fp32."""
    max_nonfinite_updates: PositiveInt = 10
    """Consecutive updates skipped for a non-finite loss before the run is given up."""


AlgoConfig = Annotated[SacConfig, Field()]
