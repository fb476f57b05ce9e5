"""How an environment is put together: a model and the terms of each manager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from torch import Tensor

from drivetrain_trainer.envs.state import TermState

if TYPE_CHECKING:
    from pathlib import Path

    from drivetrain_api.metrics import Family
    from drivetrain_trainer.envs.rng import ManagerRng
    from drivetrain_trainer.physics.port import ModelFacts

Quantity = Callable[[TermState], Tensor]
"""Something about each world, (N,) or (N, k); written once, for any device and dtype."""


@dataclass(frozen=True)
class ObservationTerm:
    """Columns of the observation."""

    name: str
    compute: Quantity
    """(N, k)."""


@dataclass(frozen=True)
class RewardTerm:
    """A summand of the reward: `weight` times a raw value."""

    name: str
    compute: Quantity
    """(N,)."""
    weight: float = 1.0


@dataclass(frozen=True)
class TerminationTerm:
    """A reason for which an episode is over for good."""

    name: str
    compute: Quantity
    """(N,) bool."""


@dataclass(frozen=True)
class LogTerm:
    """A metric of the environment's own: the mean, or the count, of something over the worlds."""

    tag: str
    """With the prefix of one of the definition's `log_families`, such as ``gait/duty``."""
    compute: Quantity
    """(N,): numbers of which the mean is logged; of a family that counts, (N,) bool, of which
    the number is logged."""


@dataclass
class ResetDraft:
    """The states into which worlds are about to be reset; reset terms write into it in turn.

    The terms are given one world after the other, so that each draws its numbers in turn.
    """

    model: ModelFacts
    qpos: Tensor
    """(n, nq), the model's reference configuration at first."""
    qvel: Tensor
    """(n, nv), zeros at first."""

    @property
    def count(self) -> int:
        """n, the worlds that are reset."""
        return len(self.qpos)


@dataclass(frozen=True)
class ResetTerm:
    """A change of the states into which worlds are reset."""

    name: str
    apply: Callable[[ResetDraft, ManagerRng], None]


@dataclass(frozen=True, kw_only=True)
class EnvDefinition:
    """A manager-based environment, as data."""

    model: Path | str
    """An MJCF file, or MJCF text."""
    substeps: int
    """Physics steps of one environment step."""
    episode_length: int
    observations: tuple[ObservationTerm, ...]
    """In the order of their columns."""
    rewards: tuple[RewardTerm, ...]
    resets: tuple[ResetTerm, ...]
    """In the order in which they are applied."""
    terminations: tuple[TerminationTerm, ...] = ()
    outputs: frozenset[str] = frozenset()
    """Derived MuJoCo fields that the terms read."""
    tracked: Mapping[str, Quantity] = field(default_factory=lambda: MappingProxyType({}))
    """Quantities whose change over a step terms ask for."""
    log: tuple[LogTerm, ...] = ()
    """Metrics beside those of rewards and terminations."""
    log_families: tuple[Family, ...] = ()
    """Families that their tags are of, owned by the environment."""
