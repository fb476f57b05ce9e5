"""``timings.json`` and ``timings_hardware.json``: the two files beside an experiment's runs.

``timings.json`` is a plain mapping from stage to its runs and has no version; what describes
the hardware is in the second file, once for each description, under an id that runs name.
Readers keep what they do not know, so that a file survives being written by an older version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from drivetrain_api.artifacts.base import ArtifactError, ArtifactModel
from drivetrain_api.base import Measure, NonNegativeInt, PositiveInt
from drivetrain_api.timings.hardware import HardwareId, HardwareRecord

TIMINGS: Final = "timings.json"
HARDWARE: Final = "timings_hardware.json"
HARDWARE_SCHEMA_VERSION: Final = 1

StageName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""Such as ``sac_train``: anything on one line."""
Note = Annotated[str, Field(strict=True, min_length=1, max_length=253)]

_LEGACY: Final = ("system_ram_gb", "gpu_ram_gb")
"""What files from before the second file said of hardware, in a run, a stage or the file."""

_SHOWN: Final = 3
"""Defects of a file that its refusal names."""
_File = TypeVar("_File", bound=BaseModel)


class _Kept(ArtifactModel):
    """Unknown keys are kept: a file of a later version is written back whole."""

    model_config = ConfigDict(extra="allow")


class StageRun(_Kept):
    """One measured execution of a stage."""

    seconds: Measure
    """Duration by a monotonic clock."""
    hardware_id: HardwareId | None = None
    """Key of the description in timings_hardware.json; null in historical files."""
    run_idx: NonNegativeInt | None = None
    """Index of the run (of its seed) from 0, as in checkpoints and reports; null for a stage
    that is measured once for all runs."""
    label: Note | None = None
    """Words for a person, such as the seed."""
    invocation: Note | None = None
    """Id of the experiment's start that this belongs to; kept when that start is resumed."""
    system_ram_gb: Measure | None = None
    """Historical files alone: memory of the machine of then, as it was written."""
    gpu_ram_gb: Measure | None = None
    """Historical files alone: memory of its GPU, as it was written."""

    @property
    def legacy(self) -> bool:
        """Whether it describes hardware in the historical way."""
        return self.system_ram_gb is not None or self.gpu_ram_gb is not None


class Stage(_Kept):
    """A stage of the experiment."""

    total_seconds: Measure
    """Sum over the runs."""
    runs: Annotated[tuple[StageRun, ...], Field(max_length=1_000_000)]
    """By run_idx."""

    @classmethod
    def of(cls, runs: Iterable[StageRun]) -> Self:
        """A stage of these runs, with their sum."""
        listed = tuple(runs)
        return cls(total_seconds=sum(run.seconds for run in listed), runs=listed)


class Timings(RootModel[dict[StageName, Stage]]):
    """``timings.json``."""

    model_config = ConfigDict(frozen=True)

    root: dict[StageName, Stage] = Field(default_factory=dict)
    """Stage name -> stage."""

    def to_json(self) -> str:
        """Indented JSON with a final newline; facts that are not known are left out."""
        return self.model_dump_json(indent=2, exclude_none=True) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote, or a historical file with embedded memory sizes.

        Raises:
            ArtifactError: it is torn, or the JSON of something else; says where.
        """
        if not _may_be_legacy(text):
            # At once where it is sound: a third of the time for a file of a thousand runs.
            with suppress(ValidationError):
                return cls.model_validate_json(text)
        content = _object(text, cls.__name__)
        if "schema_version" in content:
            raise ArtifactError("not a Timings: it has a schema_version, and timings.json none")
        return _validated(cls, _runs_own_legacy(content))


class HardwareSidecar(_Kept):
    """``timings_hardware.json``."""

    schema_version: PositiveInt = HARDWARE_SCHEMA_VERSION
    """Version of the descriptions."""
    hardware: dict[HardwareId, HardwareRecord] = Field(default_factory=dict)
    """Each description once, by its id."""

    def to_json(self) -> str:
        """Indented JSON with a final newline; facts that are not known are left out."""
        return self.model_dump_json(indent=2, exclude_none=True) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ArtifactError: it is torn, the JSON of something else, or of a later version.
        """
        content = _object(text, cls.__name__)
        version = content.get("schema_version")
        if type(version) is int and version > HARDWARE_SCHEMA_VERSION:
            raise ArtifactError(
                f"schema_version {version} is newer than {HARDWARE_SCHEMA_VERSION}, "
                "the newest that this version of drivetrain reads"
            )
        if "schema_version" not in content or "hardware" not in content:
            raise ArtifactError("not a HardwareSidecar: needs schema_version and hardware")
        return _validated(cls, content)


def _may_be_legacy(text: str | bytes) -> bool:
    content = text.encode(errors="replace") if isinstance(text, str) else text
    return any(key.encode() in content for key in _LEGACY)


def _runs_own_legacy(content: dict[str, Any]) -> dict[str, Any]:
    """Memory sizes that a file or a stage states for all its runs, stated by each run."""
    of_file = {key: content[key] for key in _LEGACY if _is_size(content.get(key))}
    return {
        name: _stage_with(stage, of_file)
        for name, stage in content.items()
        if name not in of_file and not (name in _LEGACY and stage is None)
    }


def _stage_with(stage: Any, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON, validated after
    if not isinstance(stage, dict) or not isinstance(stage.get("runs"), list):
        return stage
    sizes = {**given, **{key: stage[key] for key in _LEGACY if _is_size(stage.get(key))}}
    if not sizes:
        return stage
    runs = [
        run if not isinstance(run, dict) or "hardware_id" in run else {**sizes, **run}
        for run in stage["runs"]
    ]
    rest = {key: value for key, value in stage.items() if key not in _LEGACY}
    return {**rest, "runs": runs}


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _object(text: str | bytes, kind: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"not a {kind}: torn, or no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ArtifactError(f"not a {kind}: a JSON {type(content).__name__}, no object")
    return content


def _validated(kind: type[_File], content: object) -> _File:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        found = [
            f"{'.'.join(str(part) for part in detail['loc']) or 'content'}: {detail['msg']}"
            for detail in error.errors(include_url=False, include_input=False)
        ]
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise ArtifactError(f"not a {kind.__name__}: {'; '.join(found[:_SHOWN])}{more}") from error
