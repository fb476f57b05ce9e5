"""``run_config.json``: the composed configuration of a run, and what it resolved to."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field

from drivetrain_api.algorithms import Precision
from drivetrain_api.artifacts.base import ArtifactModel
from drivetrain_api.base import Finite, Name, PositiveInt, ShortText, StepOffset, Text
from drivetrain_api.metrics import Reduction, Unit
from drivetrain_api.trainingrun import TrainingRunSpec


class ResolvedDevice(ArtifactModel):
    """A device request and what it became."""

    configured: ShortText
    """As composed: auto, cpu, cuda..."""
    resolved: ShortText
    """The torch device in use."""


class ResolvedDevices(ArtifactModel):
    """Devices of rank 0."""

    learner: ResolvedDevice
    """`training.device`."""
    collector_tensor: ResolvedDevice
    """`training.collector_tensor_device`."""


class ActiveTerm(ArtifactModel):
    """A row of the table of active environment terms."""

    manager: ShortText
    """observation, action, command, event, reward, termination or curriculum."""
    name: ShortText
    """Name of the term."""
    size: PositiveInt | None = None
    """Columns of an action or observation term."""
    weight: Finite | None = None
    """Weight of a reward term."""


class MetricFamily(ArtifactModel):
    """Metrics of the environment's own, beside those that every run may have."""

    prefix: ShortText
    """With its final slash."""
    unit: Unit
    """What values count."""
    reduction: Reduction
    """How the ranks' values become one."""


class HostFacts(ArtifactModel):
    """The machine of rank 0, as far as results and throughput depend on it."""

    platform: Text
    """Kernel and architecture."""
    cpu_model: Text
    """Model name of the CPU."""
    cpu_capability: ShortText
    """Instruction set that Torch's kernels use, such as AVX512."""
    usable_cpus: PositiveInt
    """CPUs that the process may run on."""
    torch_threads: PositiveInt
    """Threads of a Torch operation."""
    memory_bytes: StepOffset
    """Memory limit of the container, else the machine's memory."""


class RunFacts(ArtifactModel):
    """What the run knew once everything was resolved."""

    name: Name
    """The TrainingRun's name."""
    namespace: Name
    """Its namespace."""
    uid: ShortText
    """Its UID."""
    attempt: PositiveInt
    """The attempt that wrote this file."""
    created: datetime
    """Creation time of the TrainingRun."""
    world_size: PositiveInt
    """Ranks."""
    resolved_devices: ResolvedDevices
    """Configured to resolved devices."""
    resolved_precision: Precision
    """What `algo.precision` became: fp32 or bf16."""
    observation_dim: PositiveInt
    """Width of an observation."""
    action_dim: PositiveInt
    """Width of an action."""
    terms: Annotated[tuple[ActiveTerm, ...], Field(max_length=256)] = ()
    """Active terms of the environment."""
    metric_families: Annotated[tuple[MetricFamily, ...], Field(max_length=64)] = ()
    """Families that the environment declares; readers of metrics know their tags by them."""
    versions: dict[ShortText, Text]
    """Package -> version of what the result depends on."""
    host: HostFacts | None = None
    """The machine."""


class RunConfig(ArtifactModel, TrainingRunSpec):
    """The composed spec at the top level, snake_case, and the section `run`."""

    schema_version: Literal[1] = 1
    """Version of this artifact."""
    run: RunFacts
    """What was resolved."""

    @classmethod
    def of(cls, spec: TrainingRunSpec, run: RunFacts) -> Self:
        """The artifact of a composed spec."""
        return cls.model_validate({**spec.model_dump(), "run": run})
