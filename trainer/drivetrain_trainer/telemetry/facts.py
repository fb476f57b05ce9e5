"""What a run is, for its terminal: fixed for the life of the process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MpsStatus(StrEnum):
    """How CUDA MPS concerns rank 0."""

    ON = "on"
    """Requested and validated."""
    AMBIENT = "ambient"
    """A daemon of the environment, not requested by the run."""
    OFF = "off"
    """No daemon, or no CUDA."""


@dataclass(frozen=True)
class SystemFacts:
    """Names and sizes that the panel shows beside the metrics."""

    run_name: str
    """Name of the run directory."""
    algo: str
    """Algorithm, such as ``sac``."""
    task: str
    """Task, such as ``half_cheetah``."""
    sim: str
    """Simulator, such as ``mujoco``."""
    num_envs: int
    """Environments of one rank."""
    batch_per_rank: int
    """Replay rows of one update on one rank."""
    updates_per_iteration: int = 1
    """Updates of one learner iteration."""
    ranks: int = 1
    """Ranks over all nodes."""
    gpus: int = 0
    """GPUs over all ranks; 0 trains on the CPU."""
    buffer_capacity: int | None = None
    """Transitions that the replay ring of a rank holds; None without one."""
    mps: MpsStatus = MpsStatus.OFF
    """CUDA MPS status of rank 0."""
    target_env_steps: int | None = None
    """Environment steps, over all ranks, at which the run is complete."""
    target_iterations: int | None = None
    """Learner iterations at which the run is complete, where it counts those."""
    start_env_steps: int = 0
    """Environment steps of the checkpoint that this attempt goes on from."""


@dataclass(frozen=True)
class EvaluationFigures:
    """The latest evaluation, and the best so far."""

    env_steps: int
    """Environment steps at which the policy was evaluated."""
    mean: float
    """Mean return over the episodes."""
    sd: float
    """Standard deviation of the returns."""
    episodes: int
    """Episodes."""
    best_mean: float
    """Best mean return of any evaluation so far, this one included."""
    best_env_steps: int
    """Where that was."""
    mean_length: float | None = None
    """Mean episode length in steps."""
