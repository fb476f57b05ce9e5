"""How a rank was taken down, and what first went wrong: the producer's side of `shutdown`.

It is `runtime_manifest.shutdown` of run_summary.json (rank 0's) and part of every rank's
outcome file. The manifest keeps it opaque, so its diagnostics may grow within a version;
`classification`, `owner`, `phase` and `cleanup.errors` are what a soak's verdict reads.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from drivetrain_api.artifacts.base import ArtifactModel
from drivetrain_api.artifacts.runtime_manifest import ReplayIngressEvidence
from drivetrain_api.base import (
    Flag,
    NonNegativeInt,
    PositiveInt,
    ShortText,
    StepOffset,
    Text,
)


class Classification(StrEnum):
    """Who started the end; on a failure, whoever failed first."""

    NORMAL_COMPLETION = "normal_completion"
    """The run reached its steps, its iterations or its target."""
    LEARNER_FAILURE = "learner_failure"
    """The learner's own process: an exception, a full disk, a signal that nobody asked for."""
    COLLECTOR_FAILURE = "collector_failure"
    """The process that steps environments raised, ended or was killed."""
    BACKEND_WORKER_FAILURE = "backend_worker_failure"
    """The simulator process of a backend died or no longer answers its collector."""
    STALE_TICK = "timeout/stale_tick"
    """A process lives but did not come to its tick in time."""
    EXTERNAL_CANCELLATION = "external_cancellation"
    """Somebody outside asked for the end: a signal, a newer attempt."""
    UNKNOWN_FAILURE = "unknown_failure"
    """Something failed that cannot be laid at anybody's door, as where another rank is gone."""


class Owner(StrEnum):
    """The party that the end began with."""

    LEARNER = "learner"
    COLLECTOR = "collector"
    BACKEND_WORKER = "backend_worker"
    OTHER_RANK = "other_rank"
    EXTERNAL = "external"
    UNKNOWN = "unknown"


class LifePhase(StrEnum):
    """What a rank was doing."""

    START_UP = "start_up"
    """Making its parts, until the collector's environments are ready."""
    WARM_UP = "warm_up"
    """Collecting what the first update needs."""
    COLLECTING = "collecting"
    """Serving actions, or waiting for the collector, between two updates."""
    LEARNING = "learning"
    """Sampling and updating."""
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    FINISH = "finish"
    """The last report, and letting go of everything."""


class ShutdownException(ArtifactModel):
    """The exception that was the cause."""

    type: ShortText
    """Its class."""
    message: Annotated[str, Field(strict=True, max_length=4096)]
    """What it says."""


class LearnerCoordination(ArtifactModel):
    """Where the learner stood when the cause was recorded."""

    rank: NonNegativeInt
    """Global rank."""
    world_size: PositiveInt
    """Ranks of the attempt."""
    env_steps: StepOffset
    """Environment steps over all ranks."""
    replay_rows: StepOffset | None = None
    """Rows in replay; null before it was made."""
    stop_requested: Flag = False
    """Whether the rank was asked to stop, then or before."""
    stop_signal: ShortText | None = None
    """The signal that asked it."""


class InferenceRingSnapshot(ArtifactModel):
    """The slots between learner and collector, read at the cause."""

    capacity: PositiveInt
    """Slots."""
    groups: PositiveInt
    """Groups that the environments form."""
    requested_ticks: Annotated[tuple[StepOffset, ...], Field(max_length=1024)]
    """Tick of the newest request, by group."""
    responded_ticks: Annotated[tuple[StepOffset, ...], Field(max_length=1024)]
    """Tick of the newest response, by group."""
    response_epochs: Annotated[tuple[StepOffset, ...], Field(max_length=1024)]
    """Epoch (policy number) of the newest response, by group."""
    responses: StepOffset
    """Responses given in all."""
    stop_requested: Flag
    """Whether the collector was told to end through the ring."""


class CollectorSnapshot(ArtifactModel):
    """The collector's process after the take-down."""

    pid: PositiveInt
    """Process number."""
    alive: Flag
    """Whether it is still there, which is a defect."""
    exitcode: Annotated[int, Field(strict=True, ge=-64, le=255)] | None
    """Exit status, negative for a signal; null only while it is alive."""
    signal: PositiveInt | None
    """Number of the signal that ended it."""
    killed: Flag = False
    """Whether the supervisor had to kill it since it did not end within its grace."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.alive != (self.exitcode is None):
            raise ValueError(f"alive {self.alive} contradicts exitcode {self.exitcode}")
        ended_by = -self.exitcode if self.exitcode is not None and self.exitcode < 0 else None
        if self.signal != ended_by:
            raise ValueError(f"signal {self.signal} contradicts exitcode {self.exitcode}")
        return self


class CleanupSnapshot(ArtifactModel):
    """What went wrong while taking the rank down; never hides the cause."""

    errors: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
    """One line each: the step, the error's class, its message."""


class ShutdownReport(ArtifactModel):
    """The end of a rank."""

    classification: Classification
    """Class of the first cause."""
    owner: Owner
    """The party that it began with."""
    phase: LifePhase
    """What the rank was doing."""
    iteration: StepOffset
    """Learner iterations of the run."""
    coordination_tick: StepOffset | None
    """Tick of the lockstep with the collector, from this attempt's start; null before it."""
    inference_epoch: StepOffset | None
    """Number of the policy that chose the newest actions; null before the first."""
    exception: ShutdownException | None
    """Null where nothing was raised: at a completion, and where a signal ended the run."""
    learner_coordination: LearnerCoordination
    """Where the learner stood."""
    inference_ring: InferenceRingSnapshot | None
    """Null only where the ring was never made, or went with a rank that was killed."""
    replay_ingress: ReplayIngressEvidence | None
    """Null only where the ingress was never made, or went with a rank that was killed."""
    collector: CollectorSnapshot | None
    """Null only where no collector was ever started, or it went with a rank that was killed."""
    cleanup: CleanupSnapshot
    """What failed on the way out."""

    @model_validator(mode="after")
    def _one_story(self) -> Self:
        if self.classification is Classification.NORMAL_COMPLETION and self.exception is not None:
            raise ValueError("a normal completion has no exception")
        return self
