"""The soak monitor's artifact, version 0.3.0: what it saw of a run, and its verdict.

Its version moves independently of the metric schema's and of the runtime manifest's. What the
producer said of its own shutdown is kept as it came; all else is typed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from drivetrain_api.artifacts.base import ArtifactError, ArtifactModel
from drivetrain_api.base import (
    INT64_MAX,
    Flag,
    Measure,
    Moment,
    NonNegativeInt,
    Path,
    PositiveInt,
    Probability,
    ShortText,
    StepOffset,
)

SOAK_VERSION: Final = "0.3.0"
"""The one version that readers take."""
SAMPLE_LIMIT: Final = 720
"""Most samples of an artifact: an hour of the default interval, at full resolution."""
REASON_LIMIT: Final = 4096
RESIDUAL_LIMIT: Final = 64
NORMAL_COMPLETION: Final = "normal_completion"


class SoakStatus(StrEnum):
    """The verdict."""

    PASSED = "passed"
    FAILED = "failed"


class ProducerFailure(StrEnum):
    """Who started an abnormal end, as the run itself says; takes precedence over the monitor."""

    LEARNER = "learner_failure"
    COLLECTOR = "collector_failure"
    BACKEND_WORKER = "backend_worker_failure"
    STALE_TICK = "timeout/stale_tick"
    CANCELLED = "external_cancellation"
    UNKNOWN = "unknown_failure"


class MonitorFailure(StrEnum):
    """What the monitor found, where the run itself names no cause."""

    STALE_TICK = "timeout/stale_tick"
    RESOURCE_LEAK = "resource_leak"
    THROUGHPUT_DECAY = "throughput_decay"
    RESIDUAL_PROCESS = "residual_process"
    CRASH = "process_crash"
    CANCELLED = "external_cancellation"
    VERSION = "version_mismatch"
    SUMMARY = "invalid_summary"


Classification = ProducerFailure | MonitorFailure
Reason = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=REASON_LIMIT)]
Amount = Annotated[int, Field(strict=True, ge=0, le=INT64_MAX)]
Words = Annotated[str, Field(strict=True, max_length=4096)]


class SoakFigures(ArtifactModel):
    """What a tree of processes holds at one moment, summed over it."""

    processes: NonNegativeInt
    """Living processes; zombies are none."""
    rss_bytes: Amount
    """Resident memory; what processes share counts in each."""
    pss_bytes: Amount | None
    """Resident memory with shared pages split among their users; null where it is not told."""
    fds: Amount
    """Open file descriptors."""
    threads: Amount
    """Threads."""
    shm_bytes: Amount
    """Files in /dev/shm, of this user, that were made since the soak began."""
    gpu_bytes: Amount | None
    """Memory of the GPUs; null without one."""


class SoakSample(ArtifactModel):
    """One sample, or several in a row that were merged to bound their number."""

    at_s: Measure
    """Seconds from the soak's start to the last of them."""
    raw_samples: PositiveInt
    """Samples in it."""
    mean: SoakFigures
    """Means over them."""
    peak: SoakFigures
    """Greatest of each."""
    iteration: StepOffset | None
    """Learner iterations done by the last of them; null before the run told."""
    env_steps: StepOffset | None
    """Environment steps done by the last of them, over all ranks."""
    env_steps_per_sec: Measure | None
    """Throughput since the sample before; null where none was told."""
    processor_share: Probability | None = None
    """Share that the run's threads got of the processor time they asked for; null if unknown."""


class SoakFinding(ArtifactModel):
    """One rule that the run broke."""

    rule: ShortText
    """Name of the rule, such as `growth.rss`."""
    classification: MonitorFailure
    """What it amounts to."""
    message: Reason
    """Figures, for a person."""


class SoakMonitorRecord(ArtifactModel):
    """How the monitor was set, what it cost and what it found."""

    sample_s: Measure
    """Seconds between two samples."""
    start_s: Measure
    """Seconds that the first tick had."""
    stale_s: Measure
    """Seconds without a tick that were a stall."""
    grace_s: Measure
    """Seconds that processes had to end."""
    warm_up_s: Measure
    """Least seconds after the first tick that were left out."""
    duration_s: Measure | None
    """Length that was asked for; null where the run decided."""
    throughput_decay: Measure
    """Share of the throughput that may be lost."""
    raw_samples: StepOffset
    """Samples taken, before any were merged."""
    cpu_s: Measure
    """CPU seconds that the samples took."""
    torn_reads: StepOffset
    """Times that run_summary.json was there but could not be read."""
    findings: Annotated[tuple[SoakFinding, ...], Field(max_length=32)]
    """Every rule that was broken, the first cause first."""


class ResourceSummary(ArtifactModel):
    """One resource over the soak: bytes, or a count for descriptors and threads."""

    first: Amount
    """At the first judged sample, or the first of all."""
    last: Amount
    """At the last sample."""
    peak: Amount
    """Greatest of any sample."""
    growth: Annotated[int, Field(strict=True, ge=-INT64_MAX, le=INT64_MAX)] | None
    """Robust growth over the judged samples; null where they are too few."""
    limit: Amount
    """Most that was allowed."""


class ThroughputSummary(ArtifactModel):
    """Environment steps a second, over all ranks."""

    median: Measure | None
    """Over the judged samples."""
    first: Measure | None
    """Median of their first third; null where they are too few."""
    last: Measure | None
    """Median of their last third."""


class SoakResources(ArtifactModel):
    """What the soak amounts to, in figures."""

    judged_samples: NonNegativeInt
    """Samples behind the warm-up."""
    resources: Annotated[dict[ShortText, ResourceSummary], Field(max_length=16)]
    """Resource -> its figures."""
    throughput: ThroughputSummary
    """Throughput."""


class ResidualProcess(ArtifactModel):
    """A process of the run that outlived it."""

    pid: PositiveInt
    """Process id, as the monitor saw it."""
    name: ShortText
    """Name of its program."""
    command: Words
    """Its command line, cut."""


class PostShutdown(ArtifactModel):
    """What was left once the run was over."""

    residual_processes: Annotated[tuple[ResidualProcess, ...], Field(max_length=RESIDUAL_LIMIT)]
    """Living processes after the grace period; the monitor ended them."""
    residual_shm: Annotated[tuple[Words, ...], Field(max_length=RESIDUAL_LIMIT)] = ()
    """Files that were left in /dev/shm and that no process holds."""


class SoakArtifact(ArtifactModel):
    """``soak.json``."""

    schema_version: Literal["0.3.0"]
    """Version of this artifact; a reader refuses any other, and one without."""
    status: SoakStatus
    """The verdict."""
    failure_reason: Reason | None
    """The first cause, with what the producer said behind it; null where it passed."""
    failure_classification: Classification | None
    """The producer's class where it named one, else the monitor's; null where it passed."""
    command: Annotated[tuple[Words, ...], Field(max_length=256)]
    """What was watched."""
    context: dict[ShortText, JsonValue]
    """Run, attempt, host and versions."""
    started_at_utc: Moment
    """Start of the soak."""
    ended_at_utc: Moment
    """Its end."""
    duration_s: Measure
    """Seconds between the two, by a clock that is never set."""
    returncode: Annotated[int, Field(strict=True, ge=-64, le=255)] | None
    """Exit code of the command, negative for a signal; null where it never ended."""
    monitor: SoakMonitorRecord
    """The monitor itself."""
    samples: Annotated[tuple[SoakSample, ...], Field(max_length=SAMPLE_LIMIT)]
    """Samples, oldest first."""
    resource_summary: SoakResources
    """What they amount to."""
    shutdown: dict[ShortText, JsonValue] | None
    """`runtime_manifest.shutdown` as the producer wrote it; null where it wrote none."""
    post_shutdown: PostShutdown
    """What was left behind."""
    run_summary: dict[ShortText, JsonValue] | None
    """run_summary.json as it was at the end; null where there was none to read."""
    console_log: Path | None
    """The command's output, its newest part; null where it went elsewhere."""
    console_log_cut: Flag = False
    """Whether older output was dropped to bound it."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.status is SoakStatus.PASSED:
            _check_passed(self)
            return self
        if self.failure_reason is None or self.failure_classification is None:
            raise ValueError("a failed soak has failure_reason and failure_classification")
        told = producer_failure(self.shutdown)
        if told is not None and self.failure_classification.value != told.value:
            raise ValueError(
                f"failure_classification {self.failure_classification.value} is not "
                f"{told.value}, which shutdown.classification names"
            )
        return self

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read an artifact of version 0.3.0; optional fields that were added are ignored.

        Raises:
            ArtifactError: naming each field that is missing or wrong; another version, or
                none, by that alone.
        """
        try:
            document: Any = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"not a soak artifact: {error}") from error
        if not isinstance(document, Mapping) or "schema_version" not in document:
            raise ArtifactError("not a soak artifact: schema_version is missing")
        version = document["schema_version"]
        if version != SOAK_VERSION:
            raise ArtifactError(
                f"soak artifact of schema_version {version!r}: only {SOAK_VERSION!r} is supported"
            )
        return super().from_json(text)


def producer_failure(shutdown: Mapping[str, JsonValue] | None) -> ProducerFailure | None:
    """The failure that a producer's shutdown names; None for anything else, hostile or not."""
    told = shutdown.get("classification") if shutdown is not None else None
    try:
        return ProducerFailure(told) if isinstance(told, str) else None
    except ValueError:
        return None


def completion_problem(shutdown: Mapping[str, JsonValue] | None) -> str | None:
    """Why a shutdown is no normal completion; None where it is one."""
    if shutdown is None:
        return "the run wrote no runtime_manifest.shutdown"
    told = shutdown.get("classification")
    if told != NORMAL_COMPLETION:
        return f"shutdown.classification is {told!r}, not {NORMAL_COMPLETION!r}"
    for name in ("owner", "phase"):
        value = shutdown.get(name)
        if not isinstance(value, str) or not value:
            return f"shutdown.{name} must be text that is not empty; got {value!r}"
    cleanup = shutdown.get("cleanup")
    if cleanup is None:
        return None
    errors = cleanup.get("errors", []) if isinstance(cleanup, Mapping) else cleanup
    return None if errors in ([], None) else f"shutdown.cleanup.errors: {str(errors)[:512]}"


def _check_passed(artifact: SoakArtifact) -> None:
    if artifact.failure_reason is not None or artifact.failure_classification is not None:
        raise ValueError("a passed soak has neither failure_reason nor failure_classification")
    if artifact.returncode != 0:
        raise ValueError(f"a passed soak has returncode 0; got {artifact.returncode}")
    if artifact.monitor.findings:
        raise ValueError("a passed soak has no findings")
    if artifact.post_shutdown.residual_processes:
        raise ValueError("a passed soak leaves no process behind")
    problem = completion_problem(artifact.shutdown)
    if problem is not None:
        raise ValueError(f"a passed soak ends in normal completion: {problem}")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
