"""``mps-rank<R>.json``: evidence that a rank shares its GPU through CUDA MPS, or does not."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from drivetrain_api.artifacts.base import ArtifactModel
from drivetrain_api.base import Flag, NonNegativeInt, Path, PositiveInt, ShortText

Sharing = Literal["mps"]
GpuUuid = Annotated[
    str, Field(strict=True, max_length=96, pattern=r"^(GPU|MIG)-[0-9A-Za-z/-]{4,90}$")
]


class PipeKind(StrEnum):
    """What the daemon's ``control`` is on the file system."""

    SOCKET = "socket"
    FIFO = "fifo"


class MpsEvidence(ArtifactModel):
    """Refuses to say ``validated`` where a part of the evidence is missing."""

    configured: Sharing | None = None
    """What the training configuration asked for."""
    effective: Sharing | None = None
    """What the rank's GPU is shared by."""
    validated: Flag = False
    """Whether it was seen in use by this rank's processes."""
    rank: NonNegativeInt
    """Global rank."""
    world_size: PositiveInt
    """Ranks of the attempt."""
    learner_device: ShortText
    """Torch's name of the learner's device, as the rank sees it."""
    collector_device: ShortText
    """Likewise the collector's."""
    learner_gpu_uuid: GpuUuid | None = None
    """The learner's GPU; unset on a CPU."""
    collector_gpu_uuid: GpuUuid | None = None
    """The collector's GPU; unset on a CPU."""
    pipe_directory_env: Path | None = None
    """CUDA_MPS_PIPE_DIRECTORY of the rank's process."""
    pipe_directory: Path | None = None
    """The directory that the daemon was asked through."""
    control_pipe: Path | None = None
    """Path of its control pipe."""
    control_pipe_kind: PipeKind | None = None
    """socket or fifo."""
    server_pid: PositiveInt | None = None
    """The MPS server that serves the rank."""
    ambient_server: Flag = False
    """Whether that server is there without the training configuration asking for it."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.validated:
            return self
        needed = (
            "effective",
            "learner_gpu_uuid",
            "pipe_directory_env",
            "pipe_directory",
            "control_pipe",
            "control_pipe_kind",
            "server_pid",
        )
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"validated evidence needs {', '.join(missing)}")
        if self.collector_gpu_uuid not in (None, self.learner_gpu_uuid):
            raise ValueError("learner and collector share no GPU, so no server can serve both")
        if self.pipe_directory_env != self.pipe_directory:
            raise ValueError("the rank was pointed at another pipe directory than was asked")
        if self.rank >= self.world_size:
            raise ValueError(f"rank {self.rank} is not below world_size {self.world_size}")
        if self.ambient_server != (self.configured is None):
            raise ValueError("a server is ambient exactly where the configuration asks for none")
        return self
