"""`spec.training`, `spec.env`, `spec.evaluator`, `spec.checkpoint`: how a run trains.

Keys keep the names that users of the trainer know (``training.inference_slot_capacity``);
on the wire they are camelCase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field
from pydantic.fields import FieldInfo

from drivetrain_api.base import (
    AnyInt,
    ApiModel,
    Finite,
    Flag,
    Name,
    Path,
    PositiveInt,
    Probability,
    Seed,
    ShortText,
    SignedFloat,
    StepCount,
    Text,
)

_ENTRY_POINT = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
"""ASCII spelt out: ``\\w`` means more in pydantic's regular expressions than in the server's."""


NO_LOGGER: Final = "none"
"""Keeps no metrics; stands alone."""
WANDB_LOGGER: Final = "wandb"
"""The persistent backend that the ``training.wandb_`` keys configure."""
_LOGGER = "[a-z0-9][a-z0-9_.-]{0,62}"
_LOGGERS = rf"^{_LOGGER}( *, *{_LOGGER}){{0,7}}$"


def logger_names(text: str) -> tuple[str, ...]:
    """The persistent backends that a value of ``training.logger`` names; none for `none`."""
    names = tuple(name.strip() for name in text.split(","))
    return () if names == (NO_LOGGER,) else names


class WandbMode(StrEnum):
    """What Weights & Biases does with a run."""

    ONLINE = "online"
    OFFLINE = "offline"
    DISABLED = "disabled"


class SecretKeyRef(ApiModel):
    """A key of a Secret in the run's namespace."""

    name: Annotated[
        str,
        Field(
            strict=True, min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
        ),
    ]
    """Name of the Secret."""
    key: Annotated[
        str, Field(strict=True, min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")
    ] = "api-key"
    """Key in it."""


WandbText = Annotated[str, Field(strict=True, min_length=1, max_length=128)]


class CollectorTensorDevice(StrEnum):
    """Where collector tensors live; `auto` follows the learner's device."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class CudaProcessSharing(StrEnum):
    """How the processes of a rank share its GPU."""

    MPS = "mps"
    """Through CUDA MPS, NVIDIA's multi-process service."""


@dataclass(frozen=True)
class Knob:
    """Bounds of a setting of the tensor runtime: an exact integer from 1."""

    default: int | None
    """None where it follows another setting."""
    maximum: int | None
    """None where another setting bounds it."""


RUNTIME_KNOBS: Final[Mapping[str, Knob]] = MappingProxyType(
    {
        "env_steps_per_sync": Knob(1, 1024),
        "inference_slot_capacity": Knob(1, 16),
        "collector_metrics_interval": Knob(1, 10_000),
        "replay_ingress_depth": Knob(2, 16),
        "replay_ingress_slot_rows": Knob(None, None),
    }
)
"""Of ``training``, by key; the slot rows default to, and are bounded by, ``algo.num_envs``."""


_DEFAULT: Final = {name: knob.default or 1 for name, knob in RUNTIME_KNOBS.items()}


def _bounded(name: str) -> FieldInfo:
    bounds: FieldInfo = Field(strict=True, ge=1, le=RUNTIME_KNOBS[name].maximum)
    return bounds


REMOVED_KEYS: dict[str, str] = {
    "training.sim_carrier_device": "training.collector_tensor_device",
    "training.inference_transport": "training.collector_tensor_device",
    "env.sim_carrier_device": "env.collector_tensor_device",
    "env.manager_torch_device": "env.collector_tensor_device",
    "env.tensor_runtime_device": "training.device",
}
"""Retired snake_case path -> its successor, for the migration message."""


class EnvConfig(ApiModel):
    """`spec.env`: what belongs to the environments."""

    seed: Seed | None = None
    """Seeds the environments' own generator; derived from the run's seed when unset."""
    collector_tensor_device: (
        Annotated[str, Field(strict=True, max_length=8, pattern=r"^(cpu|cuda|cuda:[0-9]{1,2})$")]
        | None
    ) = None
    """Resolved from training.collectorTensorDevice; a value that disagrees is refused."""


class TrainingConfig(ApiModel):
    """`spec.training`: length, devices, tensor runtime, logging, traces."""

    total_env_steps: StepCount | None = None
    """Environment steps over all ranks after which the run is complete."""
    iterations: StepCount | None = None
    """Learner iterations after which the run is complete; instead of totalEnvSteps."""
    device: Annotated[
        str, Field(strict=True, max_length=8, pattern=r"^(auto|cpu|mps|cuda|cuda:[0-9]{1,2})$")
    ] = "auto"
    """Torch device of the learner: auto, cpu, cuda, cuda:<index>, or mps (Apple's Metal)."""
    collector_tensor_device: CollectorTensorDevice = CollectorTensorDevice.AUTO
    """Residency of collector tensors; `auto` follows the learner's device."""
    env_steps_per_sync: Annotated[int, _bounded("env_steps_per_sync")] = _DEFAULT[
        "env_steps_per_sync"
    ]
    """Vector ticks the collector takes for each learner iteration."""
    inference_slot_capacity: Annotated[int, _bounded("inference_slot_capacity")] = _DEFAULT[
        "inference_slot_capacity"
    ]
    """Slots of the inference ring."""
    collector_metrics_interval: Annotated[int, _bounded("collector_metrics_interval")] = _DEFAULT[
        "collector_metrics_interval"
    ]
    """Ticks between two metric reports of the collector."""
    replay_ingress_depth: Annotated[int, _bounded("replay_ingress_depth")] = _DEFAULT[
        "replay_ingress_depth"
    ]
    """Slots of the bounded FIFO between collector and replay."""
    replay_ingress_slot_rows: PositiveInt | None = None
    """Rows of an ingress slot, 1 to algo.numEnvs; algo.numEnvs when unset."""
    cuda_process_sharing: CudaProcessSharing | None = None
    """mps: learner and collector of a single rank on mjwarp share their GPU through CUDA MPS,
    and the run is refused unless they do."""
    max_invalid_row_share: Probability = 0.01
    """Share of a rank's latest 10,000 transitions that may be invalid (a world that diverged, a
    NaN, an infinity) and hence left out before the run is given up; 1 never gives it up."""
    sim_threads: Annotated[int, Field(strict=True, ge=1, le=256)] = 1
    """Threads with which a collector steps physics."""
    logger: Annotated[str, Field(strict=True, max_length=253, pattern=_LOGGERS)] = "tensorboard"
    """Persistent metric backends, comma separated: tensorboard, wandb, jsonl, or an installed
    one; none for no backend."""
    log_interval: PositiveInt = 10
    """Learner iterations between two submitted metric reports."""
    wandb_project: Annotated[
        str, Field(strict=True, min_length=1, max_length=128, pattern=r"^[^/\\#?%:]+$")
    ] = "drivetrain"
    """Project of Weights & Biases that the run belongs to."""
    wandb_entity: WandbText | None = None
    """User or team of Weights & Biases; the key's own when unset."""
    wandb_group: WandbText | None = None
    """Group of runs, such as the seeds of one experiment."""
    wandb_name: WandbText | None = None
    """Name that Weights & Biases shows; the run directory's when unset."""
    wandb_tags: list[Annotated[str, Field(strict=True, min_length=1, max_length=64)]] = Field(
        default_factory=list, max_length=64
    )
    """Tags of the run in Weights & Biases."""
    wandb_notes: Annotated[str, Field(strict=True, max_length=4096)] | None = None
    """Notes shown beside the run in Weights & Biases."""
    wandb_mode: WandbMode = WandbMode.ONLINE
    """online, offline (kept in the run directory, sent later) or disabled."""
    wandb_api_key_secret_ref: SecretKeyRef | None = None
    """Secret with the key of Weights & Biases, in the run's namespace."""
    log_root: Path | None = None
    """Root of run directories; `logs/<algo_log_name>/<task>` when unset."""
    log_dir: Path | None = None
    """The run directory itself, instead of a dated one below the root."""
    trace_enabled: Flag = False
    """Write a Chrome trace of each process, for Perfetto."""
    trace_output_dir: Path | None = None
    """Directory in which the run's traces get a folder; `traces` in the run directory if unset."""
    trace_thread_time: Flag = False
    """Record CPU time of the thread beside the wall time of each span."""
    trace_cuda_events: Flag = False
    """Time the device's side of CUDA work with events, on a track of its own."""
    trace_max_megabytes: Annotated[int, Field(strict=True, ge=1, le=65_536)] = 256
    """Size of a process's trace in an attempt; the newest half of it, at least, is kept."""


class EvaluatorConfig(ApiModel):
    """`spec.evaluator`: deterministic evaluation beside training."""

    interval: StepCount | None = None
    """Environment steps between evaluations; no evaluation during training when unset."""
    episodes: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 10
    """Episodes of one evaluation."""
    eval_before_train: Flag = False
    """Evaluate once before the first update."""
    target: SignedFloat | None = None
    """Stop the run, complete, once the mean evaluated return reaches this."""
    final_episodes: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None
    """Episodes of an evaluation of its own after training; none when unset, unless a threshold
    is: then as many as `episodes`."""
    threshold: SignedFloat | None = None
    """Where the mean return of the evaluation after training is below this, training is
    continued once, saved and evaluated again."""
    continuation_steps: StepCount | None = None
    """Environment steps of that continuation; a quarter of the run's length when unset."""

    @property
    def stage_episodes(self) -> int | None:
        """Episodes of the evaluation after training; None where there is none."""
        if self.final_episodes is None and self.threshold is not None:
            return self.episodes
        return self.final_episodes


class CheckpointConfig(ApiModel):
    """`spec.checkpoint`: what survives a stop."""

    interval: StepCount | None = None
    """Environment steps between checkpoints; a tenth of the run when unset."""
    keep: Annotated[int, Field(strict=True, ge=1, le=1000)] = 3
    """Newest checkpoints kept beside the best one."""
    resume_from: Path | None = None
    """A checkpoint folder to start the first attempt from."""
    save_replay: Flag = False
    """Store the replay ring in each checkpoint as well."""


class TaskConfig(ApiModel):
    """`spec.task`: the environment that is solved."""

    name: Name
    """A registered task, such as half_cheetah."""
    entry_point: Annotated[str, Field(strict=True, max_length=253, pattern=_ENTRY_POINT)] | None = (
        None
    )
    """`module:attribute` of a task that is not registered."""
    overrides: dict[ShortText, AnyInt | Finite | Flag | Text] = Field(
        default_factory=dict, max_length=64
    )
    """Parameters of the task to set, by name; others keep the task's defaults."""


class Simulator(StrEnum):
    """Physics backends a manifest may name."""

    MUJOCO = "mujoco"
    MJWARP = "mjwarp"


AVAILABLE_SIMULATORS: frozenset[Simulator] = frozenset(Simulator)
"""Simulators of this release; the others are refused by name."""

COMPILING_SIMULATORS: frozenset[Simulator] = frozenset({Simulator.MJWARP})
"""Simulators that compile kernels on a first start, which takes minutes."""

HOST_BRIDGE_SIMULATORS: frozenset[Simulator] = frozenset({Simulator.MUJOCO})
"""Simulators whose worlds live in host memory, so that collector tensors may be carried to
another device; the tensors of the others lie on the simulator's own."""
