"""The tensor runtime's settings, resolved once, before any process starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api.artifacts.runtime_manifest import KnobLimits
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.explain import show
from drivetrain_api.training import COMPILING_SIMULATORS, RUNTIME_KNOBS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drivetrain_api.trainingrun import TrainingRunSpec

START_TIMEOUT_S: Final = 120.0
"""Building environments, imports included, takes seconds; a network volume may be slow."""
COMPILING_START_TIMEOUT_S: Final = 900.0
"""The same of a simulator whose kernels are compiled on a first start, which takes minutes."""
TICK_TIMEOUT_S: Final = 120.0
"""A collector that steps takes milliseconds a tick."""
STOP_GRACE_S: Final = 5.0
"""A collector that is asked to stop ends within a tick."""

_SIZES: Final = (
    "algo.num_envs",
    "algo.replay_rows",
    "algo.batch_size",
    "algo.updates_per_step",
    "training.sim_threads",
)
"""Exact positive integers beside the knobs."""


@dataclass(frozen=True)
class RuntimeSettings:
    """Exact values handed to rings, ingress, replay and collector of a rank.

    Raises:
        SpecError: for each value that is no exact integer of its range (a bool is none), with
            its path, itself and the range.
    """

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
        refused = tuple(self._violations())
        if refused:
            raise SpecError(refused)

    def _violations(self) -> Iterator[Violation]:
        for path in _SIZES:
            yield from _refusal(path, getattr(self, path.rpartition(".")[2]), None)
        starts = self.learning_starts
        if type(starts) is not int or starts < 0:
            yield Violation(
                "algo.learning_starts", f"must be an integer of at least 0; got {show(starts)}"
            )
        for name in RUNTIME_KNOBS:
            yield from _refusal(f"training.{name}", getattr(self, name), self._maximum(name))

    def _maximum(self, knob: str) -> int | None:
        """The most that a knob may be; None where the number of environments is wrong itself."""
        bound = RUNTIME_KNOBS[knob].maximum or self.num_envs
        return bound if type(bound) is int and bound > 0 else None

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
            start_timeout_s=(
                COMPILING_START_TIMEOUT_S if spec.sim in COMPILING_SIMULATORS else START_TIMEOUT_S
            ),
        )

    @property
    def rows_before_learning(self) -> int:
        """Replay rows without which the learner may not update."""
        return max(self.batch_size, self.learning_starts * self.num_envs)

    @property
    def learner_rows_per_sync(self) -> int:
        """Replay rows that the updates of one iteration read; bounded by the memory budget."""
        return self.batch_size * self.updates_per_step

    def limits(self, chosen: Mapping[str, Any]) -> dict[str, KnobLimits]:
        """The knobs' limits by name, for the manifest.

        Args:
            chosen: What a preset or the manifest sets of the spec (`compose.chosen`), from
                which `configured` is told: None where neither set the key.
        """
        asked = chosen.get("training", {})
        return {
            name: KnobLimits(
                configured=asked.get(name),
                default=knob.default,
                effective=getattr(self, name),
                maximum=knob.maximum or self.num_envs,
            )
            for name, knob in RUNTIME_KNOBS.items()
        }


def _refusal(path: str, value: object, maximum: int | None) -> Iterator[Violation]:
    if type(value) is int and value >= 1 and (maximum is None or value <= maximum):
        return
    allowed = f"from 1 to {maximum}" if maximum is not None else "of at least 1"
    yield Violation(path, f"must be an integer {allowed}; got {show(value)}")
