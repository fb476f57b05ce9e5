"""The status of a TrainingRun: conditions, progress, digests, and the derived phase.

No floats: fractional figures are decimal strings, so that no client rounds them.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from drivetrain_api.base import (
    ApiModel,
    Flag,
    NonNegativeInt,
    Path,
    Sha256,
    ShortText,
    StepOffset,
)

Decimal = Annotated[
    str, Field(strict=True, max_length=32, pattern=r"^-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$")
]
Message = Annotated[str, Field(strict=True, max_length=1024)]


class ConditionType(StrEnum):
    """Types of the conditions in `status.conditions`."""

    ACCEPTED = "Accepted"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    MPS_READY = "MPSReady"
    CHECKPOINTED = "Checkpointed"
    STALLED = "Stalled"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"


class Reason(StrEnum):
    """Stable reasons of conditions and Events."""

    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    WAITING_FOR_PODS = "WaitingForPods"
    PODS_SCHEDULED = "PodsScheduled"
    PODS_RUNNING = "PodsRunning"
    PODS_STOPPED = "PodsStopped"
    CHECKPOINT_WRITTEN = "CheckpointWritten"
    NO_PROGRESS = "NoProgress"
    PROGRESSING = "Progressing"
    BACKING_OFF = "BackingOff"
    ATTEMPT_STARTED = "AttemptStarted"
    SUSPENDING = "Suspending"
    SUSPENDED_BY_SPEC = "SuspendedBySpec"
    RESUMED = "Resumed"
    TRAINING_COMPLETE = "TrainingComplete"
    TARGET_REACHED = "TargetReached"
    THRESHOLD_MISSED = "ThresholdMissed"
    ATTEMPT_FAILED = "AttemptFailed"
    NON_RETRYABLE_EXIT = "NonRetryableExit"
    RESTARTS_EXHAUSTED = "RestartsExhausted"
    PENDING_DEADLINE = "PendingDeadlineExceeded"
    ACTIVE_DEADLINE = "ActiveDeadlineExceeded"
    DISRUPTED = "Disrupted"
    OOM_KILLED = "OOMKilled"
    STALLED = "Stalled"
    NODE_LOST = "NodeLost"
    JOB_DELETED = "JobDeleted"
    CANNOT_START = "CannotStart"
    NAME_TAKEN = "NameTaken"
    CREATION_REFUSED = "CreationRefused"
    QUEUED = "Queued"
    UNSCHEDULABLE = "Unschedulable"
    VOLUME_PENDING = "VolumePending"
    QUOTA_EXCEEDED = "QuotaExceeded"
    POD_SECURITY = "PodSecurityViolation"
    POD_REFUSED = "PodRefused"
    IMAGE_PULL = "ImagePullFailed"
    CRASH_LOOP = "CrashLoopBackOff"
    CONTAINER_WAITING = "ContainerWaiting"
    MPS_SERVING = "MPSServing"
    MPS_NOT_READY = "MPSNotReady"


class ConditionStatus(StrEnum):
    """Kubernetes' three condition values."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Phase(StrEnum):
    """One word for a person; derived from the conditions by `phase_of`."""

    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        """Whether the run is over for good."""
        return self in (Phase.COMPLETE, Phase.FAILED)


class Condition(ApiModel):
    """A standard Kubernetes condition."""

    type: ConditionType
    """What it tells."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[
        str,
        Field(
            strict=True,
            min_length=1,
            max_length=128,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
    ]
    """One stable CamelCase word."""
    message: Message = ""
    """For a person."""
    last_transition_time: datetime
    """When status last changed."""
    observed_generation: StepOffset = 0
    """Generation of the spec it speaks of."""


class Progress(ApiModel):
    """The trainer's own figures, at most a few seconds old while it runs."""

    iteration: StepOffset = 0
    """Learner iterations done."""
    env_steps: StepOffset = 0
    """Environment steps taken over all ranks: the step axis."""
    target_env_steps: StepOffset | None = None
    """Environment steps at which the run is complete."""
    percent: Annotated[int, Field(strict=True, ge=0, le=100)] | None = None
    """Whole percent of the run done; unset where its length in steps is not known."""
    steps_per_second: Decimal | None = None
    """Environment steps a second over all ranks."""
    mean_reward: Decimal | None = None
    """Mean return of the last 100 episodes."""
    evaluated_return: Decimal | None = None
    """Mean return of the latest evaluation."""
    best_evaluated_return: Decimal | None = None
    """Mean return of the best evaluation so far."""
    eta_seconds: NonNegativeInt | None = None
    """Estimated seconds to the end."""
    checkpoint_env_steps: StepOffset | None = None
    """Step of the newest complete checkpoint."""
    at: datetime | None = None
    """When the trainer wrote this."""


class RunSummaryDigest(ApiModel):
    """The bounded part of run_summary.json that the status shows."""

    status: ShortText
    """running, completed, interrupted or failed."""
    total_env_steps: StepOffset = 0
    """Environment steps over all ranks."""
    completed_iterations: StepOffset = 0
    """Learner iterations."""
    wall_time_seconds: Decimal | None = None
    """Wall time of the last attempt."""
    final_mean_reward: Decimal | None = None
    """Mean return of the last 100 episodes at the end."""
    best_mean_reward: Decimal | None = None
    """Best such mean."""
    evaluated_return: Decimal | None = None
    """Mean return of the best evaluation."""
    final_evaluated_return: Decimal | None = None
    """Mean return of the evaluation after training, or after its continuation."""
    threshold_missed: Flag | None = None
    """Whether that is below evaluator.threshold; unset without a threshold."""
    final_env_steps_per_sec: Decimal | None = None
    """Throughput at the end."""
    run_directory: Path | None = None
    """Run directory, relative to the storage root where it lies below it."""
    wandb_run_url: Path | None = None
    """Page of the run in Weights & Biases."""
    lost_records: StepOffset | None = None
    """Records that metric backends never took in the last attempt."""
    error_type: ShortText | None = None
    """Class of the error on failure."""
    error: Message | None = None
    """Its message."""


class SoakVerdict(StrEnum):
    """What the soak monitor came to."""

    PASSED = "Passed"
    FAILED = "Failed"


class SoakDigest(ApiModel):
    """The bounded part of soak.json that the status shows."""

    verdict: SoakVerdict
    """Passed or Failed."""
    attempt: NonNegativeInt
    """The attempt that was watched."""
    failure_classification: ShortText | None = None
    """Class of the failure, such as resource_leak."""
    failure_reason: Message | None = None
    """The first cause, with figures."""
    duration_seconds: NonNegativeInt = 0
    """Seconds that the monitor watched."""
    samples: StepOffset = 0
    """Samples that it took."""
    peak_rss_bytes: StepOffset | None = None
    """Most resident memory of the processes together."""
    peak_pss_bytes: StepOffset | None = None
    """The same, with shared memory counted once."""
    peak_gpu_bytes: StepOffset | None = None
    """Most GPU memory."""
    rss_growth_bytes: StepOffset | None = None
    """Growth of resident memory behind the warm-up, 0 where it shrank; unset where the soak
    was too short to tell."""
    residual_processes: NonNegativeInt = 0
    """Processes that outlived the attempt."""


class Artifact(ApiModel):
    """A file that the run left on its storage."""

    name: ShortText
    """What it is: best_checkpoint, last_checkpoint, run_summary, run_config, soak, video."""
    uri: Path
    """Where it lies, relative to the storage root."""
    sha256: Sha256 | None = None
    """Digest of a file; that of its manifest for a checkpoint folder."""
    bytes: StepOffset = 0
    """Size."""


class AttemptRecord(ApiModel):
    """How one attempt ended."""

    attempt: NonNegativeInt
    """Number of the attempt, from 1."""
    started_at: datetime | None = None
    """When it was decided on."""
    reason: ShortText
    """Why it ended."""
    message: Message = ""
    """For a person."""
    exit_code: NonNegativeInt | None = None
    """Exit code that decided."""
    counted: Flag = True
    """Whether it counts against maxRestarts."""
    ended_at: datetime
    """When it ended."""


class TrainingRunStatus(ApiModel):
    """What is; every field optional, none defaulted on the server."""

    phase: Phase | None = None
    """Derived from the conditions."""
    message: Message | None = None
    """Why it is in this phase: the words of the condition that decides it."""
    done: Annotated[str, Field(strict=True, max_length=32)] | None = None
    """Progress for a table: `42%`, or iterations where the length in steps is not known."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=16,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = ()
    """At most one a type."""
    attempt: NonNegativeInt = 0
    """Number of the current or last attempt; 0 before the first."""
    ranks: NonNegativeInt | None = None
    """Ranks of an attempt: nodes times ranks per node."""
    restarts: NonNegativeInt = 0
    """Counted failures so far; a disruption does not count."""
    disruptions: NonNegativeInt = 0
    """Attempts ended by a disruption so far."""
    attempt_started_at: datetime | None = None
    """When the current attempt was decided on, or resumed before its Job was ever seen."""
    attempt_running_at: datetime | None = None
    """When all pods of the current attempt were running; anew after Kueue resumed its Job,
    and unset once the attempt is over."""
    job_uid: ShortText | None = None
    """UID of the current attempt's Job, once it was seen."""
    progressed_at: datetime | None = None
    """When the operator last saw iteration or envSteps change: what a stall is judged by."""
    next_attempt_at: datetime | None = None
    """When the back-off of the next attempt ends."""
    disruption_seen: Flag | None = None
    """Latched when a disruption of the current attempt was seen: its pod is soon gone."""
    started_at: datetime | None = None
    """When the first attempt was created."""
    finished_at: datetime | None = None
    """When the run became terminal."""
    active_seconds: NonNegativeInt = 0
    """Seconds that ended attempts, and ended segments of the current one, ran in total."""
    progress: Progress | None = None
    """Live figures."""
    run_summary: RunSummaryDigest | None = None
    """Digest of run_summary.json."""
    soak: SoakDigest | None = None
    """Verdict on the newest attempt that a soak monitor watched to its end."""
    artifacts: Annotated[tuple[Artifact, ...], Field(max_length=16)] = ()
    """Files on the storage."""
    history: Annotated[tuple[AttemptRecord, ...], Field(max_length=10)] = ()
    """The last ended attempts."""
    observed_generation: StepOffset = 0
    """Generation of the spec that this status speaks of."""
    storage: ShortText | None = None
    """Claim in use."""

    def condition(self, type_: ConditionType) -> Condition | None:
        """The condition of that type, if there is one."""
        return next((c for c in self.conditions if c.type is type_), None)

    def is_true(self, type_: ConditionType) -> bool:
        """Whether that condition is there and True."""
        found = self.condition(type_)
        return found is not None and found.status is ConditionStatus.TRUE


_TOLD_BY = {
    Phase.COMPLETE: (ConditionType.COMPLETE,),
    Phase.FAILED: (ConditionType.FAILED,),
    Phase.SUSPENDING: (ConditionType.SUSPENDED,),
    Phase.SUSPENDED: (ConditionType.SUSPENDED,),
    Phase.RESTARTING: (ConditionType.RESTARTING,),
    Phase.RUNNING: (ConditionType.RUNNING,),
}
"""Conditions that explain a phase while they are True."""
_HINDERS = (ConditionType.ACCEPTED, ConditionType.SCHEDULED, ConditionType.RUNNING)
"""Conditions that explain Pending, the first that is False."""


def message_of(status: TrainingRunStatus) -> str | None:
    """Why the run is in its phase, in one line; None before anything is known."""
    phase = phase_of(status)
    if phase is Phase.PENDING:
        found = (status.condition(type_) for type_ in _HINDERS)
        told = (c for c in found if c is not None and c.status is ConditionStatus.FALSE)
    else:
        found = (status.condition(type_) for type_ in _TOLD_BY[phase])
        told = (c for c in found if c is not None)
    return next((c.message for c in told if c.message), None)


def done_of(progress: Progress | None) -> str | None:
    """How far the run is, for a table: `42%`, or iterations without a target in steps."""
    if progress is None:
        return None
    if progress.percent is not None:
        return f"{progress.percent}%"
    return f"{progress.iteration} it" if progress.iteration else None


def phase_of(status: TrainingRunStatus) -> Phase:
    """The phase that the conditions amount to; the only place that decides it."""
    if status.is_true(ConditionType.COMPLETE):
        return Phase.COMPLETE
    if status.is_true(ConditionType.FAILED):
        return Phase.FAILED
    suspended = status.condition(ConditionType.SUSPENDED)
    if suspended is not None and suspended.status is ConditionStatus.TRUE:
        return Phase.SUSPENDING if suspended.reason == Reason.SUSPENDING else Phase.SUSPENDED
    if status.is_true(ConditionType.RESTARTING):
        return Phase.RESTARTING
    if status.is_true(ConditionType.RUNNING):
        return Phase.RUNNING
    return Phase.PENDING
