"""What a checkpoint says of itself, and the checks before a byte of it is believed.

A checkpoint is a folder ``step_<12 digits>`` of ``<part>.pt`` files and a ``manifest.json``
that lists them with size and SHA-256. Nothing here needs Torch: the launcher refuses a bad
``checkpoint.resume_from`` before a rank starts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, Self

from pydantic import Field, JsonValue

from drivetrain_api.algorithms import AlgoName, CriticKind
from drivetrain_api.artifacts.base import ArtifactError, ArtifactModel
from drivetrain_api.atomic import UnreadableFileError, read_bounded
from drivetrain_api.base import Finite, Name, PositiveInt, ShortText, StepOffset
from drivetrain_api.training import Simulator

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_api.tasks import TaskSpec
    from drivetrain_api.trainingrun import TrainingRunSpec

FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
MANIFEST_LIMIT: Final = 1 << 20

LEARNER_PART: Final = "learner"
"""Part that rank 0 writes: parameters are the same on every rank."""


def rank_part(rank: int) -> str:
    """Part that a rank writes: its environments' generators, its replay where asked."""
    return f"rank{rank}"


class CheckpointError(Exception):
    """A checkpoint that cannot be used; names the folder or file, and why."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class CheckpointPart(ArtifactModel):
    """One file of a checkpoint."""

    name: Annotated[str, Field(strict=True, max_length=64, pattern=r"^[a-z0-9_]+\.pt$")]
    """File name inside the folder."""
    bytes: StepOffset
    """Size."""
    sha256: Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{64}$")]
    """Digest of the content."""


class CheckpointManifest(ArtifactModel):
    """``manifest.json`` of a checkpoint folder."""

    format_version: Annotated[int, Field(strict=True, ge=1, le=FORMAT_VERSION)] = FORMAT_VERSION
    """Version of this layout."""
    created: datetime
    """When it was committed."""
    algo: AlgoName
    """Algorithm that wrote it."""
    task: Name
    """Task that it was trained on."""
    sim: Simulator
    """Simulator that it was trained with."""
    sizes: dict[ShortText, JsonValue]
    """What shapes the parameters; all must agree before it is loaded."""
    world_size: PositiveInt
    """Ranks that wrote it."""
    attempt: PositiveInt
    """Attempt that wrote it."""
    env_steps: StepOffset
    """Environment steps over all ranks."""
    iteration: StepOffset
    """Learner iterations."""
    evaluated_return: Finite | None = None
    """Mean return of the evaluation at this step, if there was one."""
    parts: Annotated[tuple[CheckpointPart, ...], Field(min_length=1, max_length=4096)]
    """Its files."""


@dataclass(frozen=True)
class CheckpointSubject:
    """What a checkpoint must be of, to be of use to a run."""

    algo: AlgoName
    task: str
    sim: Simulator
    sizes: Mapping[str, JsonValue]

    @classmethod
    def of(cls, spec: TrainingRunSpec, task: TaskSpec) -> Self:
        """Subject of a composed spec."""
        algo = spec.algo
        sizes: dict[str, JsonValue] = {
            "observation_dim": task.observation_dim,
            "action_dim": task.action_dim,
            "actor_hidden": list(algo.actor_hidden),
            "critic_hidden": list(algo.critic_hidden),
            "activation": algo.activation.value,
            "layer_norm": algo.layer_norm,
            "observation_normalization": algo.observation_normalization,
            "critic": algo.critic.value,
        }
        if algo.critic is CriticKind.C51:
            sizes["num_atoms"] = algo.num_atoms
        return cls(algo=algo.name, task=task.name, sim=spec.sim, sizes=sizes)

    def difference(self, manifest: CheckpointManifest) -> str | None:
        """What keeps a checkpoint from being of use here; None where nothing does.

        The simulator may differ: a policy trained with one may go on with another.
        """
        if manifest.algo != self.algo:
            return f"was written by algorithm {manifest.algo}; this run trains {self.algo}"
        if manifest.task != self.task:
            return f"is of task {manifest.task}; this run trains {self.task}"
        for key in sorted(self.sizes.keys() | manifest.sizes.keys()):
            theirs, ours = manifest.sizes.get(key), self.sizes.get(key)
            if theirs != ours:
                return f"has {key} {json.dumps(theirs)}; this run has {json.dumps(ours)}"
        return None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose manifest was read, and whose files are there in full size."""

    path: Path
    manifest: CheckpointManifest

    @property
    def env_steps(self) -> int:
        """Environment steps over all ranks."""
        return self.manifest.env_steps

    @property
    def bytes(self) -> int:
        """Size of its parts."""
        return sum(part.bytes for part in self.manifest.parts)

    def has(self, part: str) -> bool:
        """Whether a part of that name (without ``.pt``) is in it."""
        return any(found.name == f"{part}.pt" for found in self.manifest.parts)

    def part(self, name: str) -> CheckpointPart:
        """The entry of a part (name without ``.pt``).

        Raises:
            CheckpointError: there is none.
        """
        for found in self.manifest.parts:
            if found.name == f"{name}.pt":
                return found
        raise CheckpointError(self.path, f"holds no {name}.pt")

    def verify(self) -> None:
        """Read every file through.

        Raises:
            CheckpointError: naming the first file whose content is not what was written.
        """
        for part in self.manifest.parts:
            verify_part(self.path / part.name, part)


def open_checkpoint(path: Path, subject: CheckpointSubject | None = None) -> Checkpoint:
    """Read a checkpoint's manifest; check its version, its subject, and its files' sizes.

    Args:
        path: The checkpoint folder.
        subject: What it must be of; any where None.

    Raises:
        CheckpointError: naming what is missing, truncated, newer or of something else.
    """
    manifest = _read_manifest(path)
    difference = subject.difference(manifest) if subject is not None else None
    if difference is not None:
        raise CheckpointError(path, difference)
    for part in manifest.parts:
        file = path / part.name
        try:
            size = file.stat().st_size
        except OSError as error:
            raise CheckpointError(file, f"cannot be read: {error.strerror}") from error
        if size != part.bytes:
            kind = "truncated" if size < part.bytes else "too long"
            raise CheckpointError(file, f"{kind}: {size} bytes instead of {part.bytes}")
    return Checkpoint(path, manifest)


def verify_part(file: Path, part: CheckpointPart) -> None:
    """Compare a file's content with its entry.

    Raises:
        CheckpointError: it cannot be read, or its checksum differs.
    """
    try:
        with file.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(file, f"cannot be read: {error.strerror}") from error
    if found != part.sha256:
        raise CheckpointError(
            file, f"checksum differs: SHA-256 {found} instead of {part.sha256} (damaged)"
        )


def _read_manifest(path: Path) -> CheckpointManifest:
    file = path / MANIFEST
    try:
        content = read_bounded(file, MANIFEST_LIMIT)
    except FileNotFoundError:
        reason = f"holds no {MANIFEST}" if path.is_dir() else "is not there"
        raise CheckpointError(path, f"is no checkpoint: it {reason}") from None
    except UnreadableFileError as error:
        raise CheckpointError(path, f"is no checkpoint: {error}") from error
    _refuse_newer(file, content)
    try:
        return CheckpointManifest.from_json(content)
    except ArtifactError as error:
        raise CheckpointError(file, str(error)) from error


def _refuse_newer(file: Path, content: bytes) -> None:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(file, f"is not JSON: {error}") from error
    version = document.get("format_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise CheckpointError(
            file,
            f"was written in format {version} by a newer release; "
            f"this one reads up to {FORMAT_VERSION}",
        )
