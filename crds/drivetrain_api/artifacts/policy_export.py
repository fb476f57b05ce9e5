"""``<task>_policy.json``: what an exported policy takes, gives, and was made from."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.artifacts.base import ArtifactModel
from drivetrain_api.base import (
    Finite,
    Name,
    NonNegativeFloat,
    PositiveInt,
    Sha256,
    ShortText,
    StepOffset,
)
from drivetrain_api.training import Simulator

Bounds = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=65536)]


class ExportFormat(StrEnum):
    """Forms in which a policy leaves the project."""

    ONNX = "onnx"
    """ONNX, for onnxruntime and others."""
    TORCH = "torch"
    """`torch.export` program, for `torch.export.load`."""


class PolicyTensor(ArtifactModel):
    """An input or output."""

    name: Name
    """Name in the graph."""
    dtype: Literal["float32"] = "float32"
    """Element type."""
    shape: tuple[Literal["batch"], PositiveInt]
    """A free batch dimension, then columns."""


class PolicyFile(ArtifactModel):
    """One exported file."""

    name: ShortText
    """File name, beside this one."""
    format: ExportFormat
    """What it is."""
    bytes: StepOffset
    """Size."""
    sha256: Sha256
    """Digest of the content."""
    max_abs_difference: NonNegativeFloat
    """Largest difference from the live policy on random observations, as a share of half
    the action's range."""


class PolicyExport(ArtifactModel):
    """What lies beside the exported files."""

    schema_version: Literal[1] = 1
    """Version of this artifact."""
    task: Name
    """Task that the policy was trained on."""
    algo: AlgoName
    """Algorithm that trained it."""
    sim: Simulator
    """Simulator that it was trained with."""
    env_steps: StepOffset
    """Environment steps of the checkpoint."""
    checkpoint: ShortText
    """Name of the checkpoint folder."""
    observation: PolicyTensor
    """Raw observations: the normaliser is part of the graph."""
    action: PolicyTensor
    """Deterministic actions in the actuators' own units."""
    action_low: Bounds
    """Lowest action of each actuator, in its units."""
    action_high: Bounds
    """Highest action of each actuator, in its units."""
    files: Annotated[tuple[PolicyFile, ...], Field(min_length=1, max_length=2)]
    """The exported files."""
    versions: dict[ShortText, ShortText]
    """Package -> version of what exported and checked them."""
