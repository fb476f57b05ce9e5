"""``run_summary.json``: there from the start of a run, replaced atomically, read by tools."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.artifacts.base import ArtifactError, ArtifactModel
from drivetrain_api.artifacts.outcome import ErrorText, RunStatus
from drivetrain_api.artifacts.runtime_manifest import BackendDiagnostics, read_manifest
from drivetrain_api.artifacts.stages import RunStages
from drivetrain_api.base import (
    Finite,
    Measure,
    Moment,
    Name,
    Path,
    PositiveInt,
    Seed,
    ShortText,
    StepOffset,
    Text,
)
from drivetrain_api.training import Simulator

TAIL_WINDOW_ITERATIONS = 100
"""Iterations that the ``tail_`` and ``final_`` figures are means over."""


class RunSeeds(ArtifactModel):
    """Seeds in use."""

    run: Seed
    """`spec.seed`."""
    algo: Seed
    """Seed of the global Python and Torch generators."""
    env: Seed
    """Seed of the environments' own generator."""


class BackendTelemetry(ArtifactModel):
    """How a persistent metric backend fared in the latest attempt."""

    name: Name
    """Its name in training.logger."""
    written: StepOffset
    """Records that it took."""
    lost: StepOffset
    """Records that it never took: too slow, failed, or unwritten at the end."""
    error: Text | None = None
    """Its first error."""
    details: dict[ShortText, Text] = Field(default_factory=dict, max_length=32)
    """What it tells of itself, such as `run_url`."""


class RunTelemetry(ArtifactModel):
    """How telemetry itself went in the latest attempt."""

    reports: StepOffset
    """Reports that were submitted."""
    nonfinite_values: StepOffset
    """Values of them that were NaN or infinite."""
    overfull_timelines: StepOffset = 0
    """Reports whose exclusive learner phases add up to more than Iter Wall, over all ranks:
    a violation of the timeline's contract, to be reported as a defect."""
    backends: Annotated[tuple[BackendTelemetry, ...], Field(max_length=8)] = ()
    """One each of training.logger."""


class RunSummary(ArtifactModel):
    """State of a run; figures that it has none of yet are null."""

    status: RunStatus
    """running until the end."""
    algo: AlgoName
    """Algorithm."""
    task: Name
    """Task."""
    sim_backend: Simulator
    """Physics backend."""
    log_dir: Path
    """The run directory."""
    seeds: RunSeeds
    """Seeds."""
    start_time_utc: Moment
    """Start of the first attempt."""
    end_time_utc: Moment | None = None
    """End of the latest attempt; null while it runs."""
    wall_time_sec: Measure | None = None
    """Seconds of the latest attempt, start-up included."""
    training_wall_time_sec: Measure | None = None
    """Seconds of the latest attempt inside the training loop."""
    completed_iterations: StepOffset = 0
    """Learner iterations of the run."""
    total_env_steps: StepOffset = 0
    """Environment steps of the run over all ranks."""
    final_mean_reward: Finite | None = None
    """Mean return of the last 100 episodes."""
    best_mean_reward: Finite | None = None
    """Best such mean."""
    mean_episode_length: Measure | None = None
    """Mean length of the last 100 episodes, steps."""
    evaluated_return: Finite | None = None
    """Mean return of the latest evaluation."""
    best_evaluated_return: Finite | None = None
    """Mean return of the best evaluation."""
    stages: RunStages | None = None
    """Where it stands among its stages, and what the evaluation after training came to; null
    before training."""
    last_checkpoint: Path | None = None
    """Newest complete checkpoint."""
    best_checkpoint: Path | None = None
    """Checkpoint of the best evaluation, or else of the best training reward."""
    trace_path: Path | None = None
    """Timeline trace."""
    wandb_run_url: Path | None = None
    """W&B page of the run."""
    metric_schema_version: Literal[1] = 1
    """Version of the metric schema that the run logs by."""
    runtime_manifest: dict[ShortText, JsonValue] | None = None
    """Runtime manifest 1 of an off-policy run; null where the algorithm has none."""
    final_env_steps_per_sec: Measure | None = None
    """Throughput over all ranks at the end."""
    tail_env_steps_per_sec: Measure | None = None
    """Throughput over the last `tail_iteration_count` iterations."""
    tail_iteration_count: StepOffset = 0
    """Iterations in the tail window."""
    tail_window_iterations: PositiveInt = TAIL_WINDOW_ITERATIONS
    """Size of the tail window."""
    final_learner_replay_rows_per_sec: Measure | None = None
    """Replay rows that updates read, a second, over all ranks."""
    final_cycle_wall_ms: Measure | None = None
    """Wall time of a learner iteration."""
    final_inference_ms: Measure | None = None
    """Inference of a learner iteration."""
    final_inference_h2d_ms: Measure | None = None
    """Its copy to the device."""
    final_inference_forward_ms: Measure | None = None
    """Its forward pass."""
    final_inference_d2h_ms: Measure | None = None
    """Its copy from the device."""
    backend_diagnostics: dict[ShortText, JsonValue] | None = None
    """Physics backend diagnostics of PPO, which has no runtime manifest."""
    invalid_rows: StepOffset | None = None
    """Transitions of the latest attempt, over all ranks, that were left out because their world
    diverged or they held a NaN or an infinity; null before the first report."""
    telemetry: RunTelemetry | None = None
    """What metric backends wrote and lost; null before the first report."""
    error_type: ShortText | None = None
    """Class of the error on failure."""
    error: ErrorText | None = None
    """Its message."""

    @model_validator(mode="after")
    def _sound_manifest(self) -> Self:
        """Writers and readers alike refuse a manifest that is not one of a known version."""
        if self.runtime_manifest is not None:
            if self.algo is AlgoName.PPO:
                raise ValueError("runtime_manifest: ppo has none, but backend_diagnostics")
            completed = self.status is RunStatus.COMPLETED
            try:
                read_manifest(self.runtime_manifest, completed=completed)
            except ArtifactError as error:
                raise ValueError(f"runtime_manifest: {error}") from error
        if self.backend_diagnostics is not None:
            BackendDiagnostics.of(self.backend_diagnostics)
        return self
