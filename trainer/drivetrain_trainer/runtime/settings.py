"""The tensor runtime's settings, resolved once, before any process starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRunSpec

START_TIMEOUT_S: Final = 120.0
"""Building environments, imports included, takes seconds; a network volume may be slow."""
TICK_TIMEOUT_S: Final = 120.0
"""A collector that steps takes milliseconds a tick."""
STOP_GRACE_S: Final = 5.0
"""A collector that is asked to stop ends within a tick."""


@dataclass(frozen=True)
class KnobLimit:
    """What was asked for, and what holds, of one knob (runtime manifest, `runtime_limits`)."""

    configured: int | None
    default: int | None
    effective: int
    maximum: int


@dataclass(frozen=True)
class RuntimeSettings:
    """Exact values handed to rings, ingress, replay and collector of a rank."""

    num_envs: int
    env_steps_per_sync: int
    inference_slot_capacity: int
    collector_metrics_interval: int
    replay_ingress_depth: int
    replay_ingress_slot_rows: int
    replay_rows: int
    batch_size: int
    updates_per_step: int
    learning_starts: int
    """Ticks of random actions before the first update."""
    sim_threads: int
    start_timeout_s: float = START_TIMEOUT_S
    """From spawn to the collector's ready message."""
    tick_timeout_s: float = TICK_TIMEOUT_S
    """From an answer to the collector's next request."""
    stop_grace_s: float = STOP_GRACE_S
    """From asking the collector to stop to killing it."""

    def __post_init__(self) -> None:
        if self.replay_ingress_slot_rows > self.num_envs:
            raise ValueError(
                f"training.replay_ingress_slot_rows: {self.replay_ingress_slot_rows}, "
                f"allowed 1 to algo.num_envs = {self.num_envs}"
            )

    @classmethod
    def from_spec(cls, spec: TrainingRunSpec) -> RuntimeSettings:
        """The settings of a composed spec; a slot holds a whole vector where it says nothing."""
        algo, training = spec.algo, spec.training
        return cls(
            num_envs=algo.num_envs,
            env_steps_per_sync=training.env_steps_per_sync,
            inference_slot_capacity=training.inference_slot_capacity,
            collector_metrics_interval=training.collector_metrics_interval,
            replay_ingress_depth=training.replay_ingress_depth,
            replay_ingress_slot_rows=training.replay_ingress_slot_rows or algo.num_envs,
            replay_rows=algo.replay_rows,
            batch_size=algo.batch_size,
            updates_per_step=algo.updates_per_step,
            learning_starts=algo.learning_starts,
            sim_threads=training.sim_threads,
        )

    @property
    def rows_before_learning(self) -> int:
        """Replay rows without which the learner may not update."""
        return max(self.batch_size, self.learning_starts * self.num_envs)

    def limits(self, written: TrainingRunSpec) -> dict[str, KnobLimit]:
        """The knobs' limits by name, for the manifest.

        Args:
            written: the spec before composition, from which `configured` is told: None where
                the key was not set.
        """
        asked = written.training.model_dump(exclude_unset=True)

        def knob(name: str, default: int | None, effective: int, maximum: int) -> KnobLimit:
            return KnobLimit(asked.get(name), default, effective, maximum)

        return {
            name: knob(name, *values)
            for name, values in {
                "inference_slot_capacity": (1, self.inference_slot_capacity, 16),
                "collector_metrics_interval": (1, self.collector_metrics_interval, 10_000),
                "replay_ingress_depth": (2, self.replay_ingress_depth, 16),
                "replay_ingress_slot_rows": (None, self.replay_ingress_slot_rows, self.num_envs),
            }.items()
        }
