"""The TrainingRun resource: metadata that we read, and the spec."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from drivetrain_api.algorithms import AlgoConfig
from drivetrain_api.base import (
    ApiModel,
    Flag,
    Name,
    Seconds,
    Seed,
    ShortText,
    StepOffset,
    Text,
)
from drivetrain_api.experiment import ExperimentConfig
from drivetrain_api.mps import PATTERN
from drivetrain_api.soak import SoakConfig
from drivetrain_api.status import TrainingRunStatus
from drivetrain_api.training import (
    CheckpointConfig,
    EnvConfig,
    EvaluatorConfig,
    Simulator,
    TaskConfig,
    TrainingConfig,
)


class TopologyConfig(ApiModel):
    """`spec.topology`: how many pods, how many ranks in each."""

    nodes: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    """Pods of an attempt."""
    ranks_per_node: Annotated[int, Field(strict=True, ge=1, le=16)] = 1
    """torchrun ranks in a pod."""

    @property
    def world_size(self) -> int:
        """Ranks of an attempt."""
        return self.nodes * self.ranks_per_node


class MpsMode(StrEnum):
    """Who runs the CUDA MPS daemon."""

    DISABLED = "Disabled"
    IN_CONTAINER = "InContainer"
    EXTERNAL = "External"


class MpsConfig(ApiModel):
    """`spec.accelerator.mps`."""

    mode: MpsMode = MpsMode.DISABLED
    """Disabled, InContainer (one daemon per GPU in the pod) or External (injected)."""
    active_thread_percentage: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None
    """Percentage of a GPU's threads that each client may use."""
    pinned_memory_limit: (
        # The server's alone: `checks` refuses the same with words that help.
        Annotated[str, Field(strict=True, max_length=253, json_schema_extra={"pattern": PATTERN})]
        | None
    ) = None
    """Device memory of each client: 4G for every GPU, or 0=4G,1=512M for each."""


class AcceleratorConfig(ApiModel):
    """`spec.accelerator`: GPUs of a pod."""

    resource_name: ShortText = "nvidia.com/gpu"
    """Extended resource that a GPU is requested by."""
    gpus_per_node: Annotated[int, Field(strict=True, ge=0, le=16)] = 0
    """GPUs of each pod; 0 trains on the CPU."""
    mps: MpsConfig = MpsConfig()
    """CUDA MPS."""


class StorageConfig(ApiModel):
    """`spec.storage`: where run directories live; one of the three."""

    claim_name: ShortText | None = None
    """An existing PersistentVolumeClaim."""
    size: (
        Annotated[str, Field(strict=True, max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?[KMGT]i?$")]
        | None
    ) = None
    """Size of a claim made for this run."""
    storage_class_name: ShortText | None = None
    """Storage class of the claim made for this run."""
    empty_dir: Flag | None = None
    """Keep files only as long as the pod: they are lost with it, and so is resume."""


class RestartConfig(ApiModel):
    """`spec.restart`: what happens after a failed attempt."""

    max_restarts: Annotated[int, Field(strict=True, ge=0, le=1000)] = 3
    """Counted failures after which the run fails; disruptions do not count."""
    backoff_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] = 10
    """Wait before the first restart; doubled each time, at most 600."""
    stall_seconds: Annotated[int, Field(strict=True, ge=10, le=86_400)] = 600
    """No progress for this long is a failure."""


class DeadlinesConfig(ApiModel):
    """`spec.deadlines`: bounds on waiting and on running."""

    pending_seconds: Seconds | None = None
    """An attempt that is not running after this long fails the run."""
    active_seconds: Seconds | None = None
    """The run fails once its attempts ran this long in total wall time."""


class TrainingRunSpec(ApiModel):
    """The spec of a TrainingRun."""

    algo: AlgoConfig
    """Algorithm and its hyperparameters."""
    task: TaskConfig
    """Environment to solve."""
    sim: Simulator = Simulator.MUJOCO
    """Physics backend."""
    seed: Seed = 0
    """Seed from which every other seed derives."""
    env: EnvConfig = EnvConfig()
    """Environment settings."""
    training: TrainingConfig = TrainingConfig()
    """Length, devices, runtime and logging."""
    evaluator: EvaluatorConfig = EvaluatorConfig()
    """Evaluation beside training."""
    topology: TopologyConfig = TopologyConfig()
    """Pods and ranks."""
    accelerator: AcceleratorConfig = AcceleratorConfig()
    """GPUs and MPS."""
    image: Text | None = None
    """Trainer image; the operator's default when unset."""
    pod_template: dict[str, Any] | None = None
    """Overlay on the pod template (resources, nodeSelector, env, volumes...)."""
    storage: StorageConfig = StorageConfig()
    """Durable storage."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Checkpoints."""
    restart: RestartConfig = RestartConfig()
    """Restart policy."""
    grace_period_seconds: Annotated[int, Field(strict=True, ge=5, le=3600)] = 60
    """Between SIGTERM and SIGKILL: the checkpoint must fit in it."""
    suspend: Flag = False
    """Checkpoint, stop, and hold until it is false again."""
    queue_name: Name | None = None
    """Kueue LocalQueue of the attempt's Job."""
    scheduler_name: Name | None = None
    """Scheduler of the pods. With several nodes they name a PodGroup of the run's name."""
    deadlines: DeadlinesConfig = DeadlinesConfig()
    """Deadlines."""
    ttl_seconds_after_finished: Seconds | None = None
    """Delete the children of a finished run after this long."""
    soak: SoakConfig | None = None
    """Watch each attempt for leaks, stalls and decay, and judge it; no monitor when unset."""
    experiment: ExperimentConfig | None = None
    """The suite that the run is a member of; a run of its own when unset."""


class ObjectMeta(ApiModel):
    """The part of an object's metadata that we read."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[
        str,
        Field(strict=True, min_length=1, max_length=50, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$"),
    ]
    """Name: at most 50 characters, so that an attempt's pods fit a DNS label, and a letter
    first, which the name of a Service needs."""
    namespace: Name = "default"
    """Namespace."""
    uid: ShortText = ""
    """UID; set by the API server (or the local store)."""
    generation: StepOffset = 0
    """Generation of the spec; set by the API server."""
    resource_version: ShortText | None = None
    """Opaque version; set by the API server."""
    creation_timestamp: datetime | None = None
    """Creation time; set by the API server."""
    deletion_timestamp: datetime | None = None
    """Set while the object is being deleted."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations."""


class TrainingRun(ApiModel):
    """A TrainingRun as it is written in a manifest or read from the API server."""

    api_version: Literal["drivetrain.dev/v1alpha1"] = "drivetrain.dev/v1alpha1"
    """drivetrain.dev/v1alpha1."""
    kind: Literal["TrainingRun"] = "TrainingRun"
    """TrainingRun."""
    metadata: ObjectMeta
    """Standard metadata."""
    spec: TrainingRunSpec
    """What is wanted."""
    status: TrainingRunStatus = TrainingRunStatus()
    """What is; written by the operator alone."""
