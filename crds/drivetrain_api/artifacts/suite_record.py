"""``suite.json``: the members of a suite, what became of each, and where its files lie."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.artifacts.base import ArtifactModel
from drivetrain_api.base import Name, NonNegativeInt, Path, Seed, ShortText, Text
from drivetrain_api.suite import MAX_MEMBERS

SUITE_RECORD: Final = "suite.json"
"""File name, in the root of the suite."""
RECORD_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of the file that a reader takes."""


class MemberState(StrEnum):
    """What became of a member."""

    PENDING = "pending"
    """Not started yet."""
    RUNNING = "running"
    """Started; after a crash of the command it may have stopped since."""
    SUSPENDED = "suspended"
    """Stopped at a checkpoint; goes on with the suite."""
    COMPLETE = "complete"
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Whether it is not started again by itself."""
        return self in (MemberState.COMPLETE, MemberState.FAILED)


class SuiteBackend(StrEnum):
    """Where the members run."""

    LOCAL = "local"
    CLUSTER = "cluster"


class SuiteCluster(ArtifactModel):
    """Where the TrainingRuns of a suite are."""

    server: Path
    """Address of the API server, without a user or a password."""
    namespace: Name
    """Their namespace."""
    context: ShortText | None = None
    """Context of the kubeconfig that was named at the first start; for a person, since another
    computer calls the same cluster otherwise."""

    @property
    def key(self) -> tuple[str, str]:
        """Equal for the same place."""
        return self.server, self.namespace


class SuiteMember(ArtifactModel):
    """One variant with one seed."""

    name: Name
    """Name of its TrainingRun."""
    variant: Name
    """Name of its variant; `default` where the suite searches nothing."""
    overrides: dict[ShortText, JsonValue] = Field(default_factory=dict, max_length=64)
    """Path of the spec -> value, by which the variant differs from the template."""
    seed: Seed
    """`spec.seed`."""
    run_idx: NonNegativeInt
    """Index of the seed, from 0; the same in timings.json."""
    algo: AlgoName
    """Its algorithm."""
    task: Name
    """Its task."""
    state: MemberState = MemberState.PENDING
    """What became of it."""
    reason: Text | None = None
    """Why it failed or waits, or which threshold it missed where it is complete; for a person."""
    run_directory: Path
    """Its run directory relative to the suite's root, with slashes; the folder above it is the
    artifact directory, with timings.json."""

    @field_validator("run_directory")
    @classmethod
    def _below_the_root(cls, value: str) -> str:
        path = PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in value:
            raise ValueError(f"must lie below the root; got {value!r}")
        return value

    @property
    def artifact_directory(self) -> str:
        """Folder of timings.json, relative to the suite's root."""
        return str(PurePosixPath(self.run_directory).parent)


class SuiteRecord(ArtifactModel):
    """The state of a suite; replaced atomically whenever a member's changes."""

    schema_version: Literal[1] = 1
    """Version of this artifact."""
    name: Name
    """Name of the suite."""
    invocation: ShortText
    """Id of the suite's first start; stays when it is resumed, new when started over."""
    created: datetime
    """Time of that start."""
    backend: SuiteBackend
    """Where the members run."""
    cluster: SuiteCluster | None = None
    """On which cluster, and in which of its namespaces; unset on this machine."""
    template: dict[str, JsonValue]
    """The spec that all members share, as it was given."""
    members: Annotated[tuple[SuiteMember, ...], Field(max_length=MAX_MEMBERS)]
    """Variant by variant, the seeds of each in order."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for words, keys in (
            ("name", [member.name for member in self.members]),
            ("run directory", [member.run_directory for member in self.members]),
            ("variant and run_idx", [(m.variant, m.run_idx) for m in self.members]),
        ):
            if len(set(keys)) != len(keys):
                raise ValueError(f"two members have one {words}")
        return self

    def variants(self) -> tuple[str, ...]:
        """Names of the variants, in order."""
        return tuple(dict.fromkeys(member.variant for member in self.members))
