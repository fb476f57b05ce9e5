"""What a diagnosis finds, what it looks at, and from where on a figure is high."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.artifacts.run_config import RunConfig
    from drivetrain_api.artifacts.run_summary import RunTelemetry
    from drivetrain_trainer.analysis.shares import Collector, Learner
    from drivetrain_trainer.analysis.window import Window

COLLECTOR_WAIT_HIGH: Final = 0.15
"""Collector Wait, of Iter Wall."""
ACTION_WAIT_HIGH: Final = 0.30
"""Learner Action Wait, of the collector's cycle, while Collector Wait is not high."""
INFERENCE_HIGH: Final = 0.15
"""Inference, of Iter Wall."""
BATCH_WAIT_HIGH: Final = 0.05
"""Replay Batch Wait, of Iter Wall: near zero where the prefetch hits."""
REPLAY_WRITE_HIGH: Final = 0.15
"""Replay Write, of the collector's cycle."""
BACK_PRESSURE_HIGH: Final = 0.01
"""Wait for a free ingress slot, of the window's wall time, a rank."""
H2D_SUBMIT_HIGH: Final = 0.05
"""Replay H2D Submit, beside Iter Wall."""
OTHER_HIGH: Final = 0.15
"""What no phase explains, of Iter Wall."""
GRADIENT_SYNC_HIGH: Final = 0.15
"""Gradient all-reduces inside Learning, of Iter Wall."""
ACCOUNTED_MOST: Final = 1.001
"""Phases over Iter Wall: float32 in event files rounds by less than this."""

COLLECTOR_WAIT: Final = "Perf/learner_collector_wait_ms"
INFERENCE: Final = "Perf/learner_inference_ms"
RELEASE: Final = "Perf/learner_collector_release_ms"
BATCH_WAIT: Final = "Perf/learner_replay_batch_wait_ms"
ACTION_WAIT: Final = "Perf/collector_learner_action_wait_ms"
REQUEST: Final = "Perf/collector_inference_request_ms"
EXTRACT: Final = "Perf/collector_transition_extract_ms"
REPLAY_WRITE: Final = "Perf/collector_replay_write_ms"
H2D_SUBMIT: Final = "Perf/replay_ingress_h2d_submit_ms"
GRADIENT_SYNC: Final = "Perf/dp_gradient_sync_ms_per_rank"
OCCUPANCY: Final = "Train/replay_ingress_occupancy"
HIGH_WATER: Final = "Train/replay_ingress_high_water"
BACK_PRESSURE: Final = "Train/replay_ingress_backpressure_wait_ms"
DROPPED: Final = "Train/replay_ingress_dropped_batches"
INFERENCE_PARTS: Final = {
    "H2D": "Perf/learner_inference_h2d_ms",
    "forward": "Perf/learner_inference_forward_ms",
    "D2H": "Perf/learner_inference_d2h_ms",
}


class Problem(StrEnum):
    """What was found; stable names for scripts."""

    ACCOUNTED_TIME = "accounted-time"
    NONFINITE_VALUES = "non-finite-values"
    DROPPED_BATCHES = "dropped-batches"
    TELEMETRY_LOSS = "telemetry-loss"
    COLLECTOR_WAIT = "collector-wait"
    LEARNER_ACTION_WAIT = "learner-action-wait"
    INFERENCE = "inference"
    REPLAY_BATCH_WAIT = "replay-batch-wait"
    REPLAY_WRITE = "replay-write"
    GRADIENT_SYNC = "gradient-sync"
    OTHER_TIME = "other-time"
    REPLAY_H2D_SUBMIT = "replay-h2d-submit"


class Kind(StrEnum):
    """How a finding is meant."""

    DEFECT = "defect"
    """Something is wrong, whatever it costs."""
    BOTTLENECK = "bottleneck"
    """It makes iterations longer."""
    HIDDEN = "hidden"
    """It is long, but runs beside the iteration and does not make it longer."""


@dataclass(frozen=True)
class Finding:
    """One row of the table, found in a run."""

    problem: Problem
    kind: Kind
    cost_ms: float
    """Milliseconds of an iteration that it costs at most."""
    says: str
    """What the figures mean, with the figures."""
    details: tuple[str, ...] = ()
    """Further figures, the largest parts first."""
    check: tuple[str, ...] = ()
    """What to check first, in order; settings by their names in a manifest."""


@dataclass(frozen=True)
class Setup:
    """What of a run's configuration the advice depends on."""

    algo: str | None = None
    """Decides which phases are parts of the learner's iteration."""
    num_envs: int | None = None
    """Environments of a rank."""
    batch_size: int | None = None
    """Replay rows of one update, per rank."""
    updates_per_step: int | None = None
    """Updates of an iteration."""
    steps_per_env: int | None = None
    """Steps of a rollout, of an algorithm that has rollouts."""
    ticks: int = 1
    """Vector ticks of an iteration: `training.envStepsPerSync`."""
    ranks: int = 1
    """Ranks over all nodes."""
    ranks_per_node: int = 1
    """Ranks that share a machine."""
    sim_threads: int = 1
    """Threads that step physics."""
    ingress_depth: int = 2
    """Slots of the replay ingress."""
    usable_cpus: int | None = None
    """CPUs of rank 0's machine."""
    device: str = "cpu"
    """Torch device of the learner."""
    precision: str | None = None
    """Arithmetic of the matrix products."""

    @classmethod
    def of(cls, config: RunConfig) -> Setup:
        """From run_config.json; what an algorithm does not have stays unset."""
        algo, training, run = config.algo, config.training, config.run
        return cls(
            algo=algo.name.value,
            num_envs=getattr(algo, "num_envs", None),
            batch_size=getattr(algo, "batch_size", None),
            updates_per_step=getattr(algo, "updates_per_step", None),
            steps_per_env=getattr(algo, "steps_per_env", None),
            ticks=training.env_steps_per_sync,
            ranks=run.world_size,
            ranks_per_node=config.topology.ranks_per_node,
            sim_threads=training.sim_threads,
            ingress_depth=training.replay_ingress_depth,
            usable_cpus=run.host.usable_cpus if run.host is not None else None,
            device=run.resolved_devices.learner.resolved,
            precision=str(run.resolved_precision),
        )

    @property
    def on_cuda(self) -> bool:
        """Whether the learner has a GPU."""
        return self.device.startswith("cuda")

    @property
    def rows_per_iteration(self) -> int | None:
        """Replay rows that the updates of an iteration read, over all ranks."""
        if self.batch_size is None or self.updates_per_step is None:
            return None
        return self.batch_size * self.updates_per_step * self.ranks


@dataclass(frozen=True)
class Evidence:
    """What the rules look at."""

    window: Window
    setup: Setup
    learner: Learner | None
    collector: Collector | None
    telemetry: RunTelemetry | None = None
    """How the metrics themselves fared; None where the run does not say."""

    @property
    def values(self) -> Mapping[str, float]:
        """Means by tag."""
        return self.window.means

    @property
    def wall_ms(self) -> float:
        """Iter Wall; 0 where it was not measured."""
        return self.learner.wall_ms if self.learner is not None else 0.0

    def of_wall(self, tag: str) -> float:
        """A tag in ms as a share of Iter Wall; 0 where either is not there."""
        return self.values.get(tag, 0.0) / self.wall_ms if self.wall_ms else 0.0

    def of_cycle(self, tag: str) -> float:
        """A tag in ms as a share of the collector's cycle; 0 where either is not there."""
        return self.values.get(tag, 0.0) / self.collector.cycle_ms if self.collector else 0.0

    @property
    def collector_wait_high(self) -> bool:
        """Whether the learner waits for the collector: then the collector is what to mend."""
        return self.of_wall(COLLECTOR_WAIT) >= COLLECTOR_WAIT_HIGH
