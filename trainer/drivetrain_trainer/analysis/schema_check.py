"""Whether a run's metrics may be read: the version stamp, and what its tags say.

Nothing is guessed. A log is read as metric schema 1 only if ``run_summary.json`` says so and
every tag is one of that schema; or as a log from before the schema, if the caller says so,
no stamp is there and every tag is a known one of that time.
"""

from __future__ import annotations

import difflib
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.runtime_manifest import read_manifest
from drivetrain_api.atomic import UnreadableFileError, read_bounded
from drivetrain_api.metrics import FAMILIES, METRIC_SCHEMA_VERSION, METRICS, UnknownMetricError
from drivetrain_api.soak import UNSOAKABLE
from drivetrain_trainer.analysis.legacy import is_legacy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_api.metrics import MetricSchema

STAMP: Final = "metric_schema_version"
JSON_LIMIT: Final = 4 << 20
"""Bytes of the largest JSON artifact that is read."""

_WITHOUT_MANIFEST: Final = frozenset(name.value for name in UNSOAKABLE)
_NEUTRAL: Final = next(family for family in FAMILIES if family.prefix == "reward/")


class SchemaError(ValueError):
    """Metrics that must not be read; the message names file and tag, and what to do."""


class TagKind(StrEnum):
    """What the name of a tag tells about the log that holds it."""

    CANONICAL = "canonical"
    """Of metric schema 1."""
    NEUTRAL = "neutral"
    """The same before the schema and in it: says nothing."""
    LEGACY = "legacy"
    """Of the time before the schema."""
    UNKNOWN = "unknown"
    """Of neither."""


def kind_of(tag: str, schema: MetricSchema) -> TagKind:
    """The kind of a tag, with the families that `schema` declares."""
    if is_legacy(tag):
        return TagKind.LEGACY
    if tag not in METRICS and tag.startswith(_NEUTRAL.prefix) and tag != _NEUTRAL.prefix:
        return TagKind.NEUTRAL
    try:
        schema.lookup(tag)
    except UnknownMetricError:
        return TagKind.UNKNOWN
    return TagKind.CANONICAL


def read_object(path: Path) -> dict[str, object] | None:
    """The object in a JSON artifact; None where the file is absent.

    Raises:
        SchemaError: it cannot be read, is cut or altered, or holds a key twice.
    """
    try:
        text = read_bounded(path, JSON_LIMIT)
    except FileNotFoundError:
        return None
    except UnreadableFileError as error:
        raise SchemaError(f"{error}: it must be the file that the run wrote") from error
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise SchemaError(
            f"{path}: not whole JSON ({error}): a run replaces the file at once, so it has been "
            "damaged since: restore it"
        ) from error
    if not isinstance(value, dict):
        raise SchemaError(f"{path}: holds no JSON object, but {type(value).__name__}: restore it")
    return value


def stamp_of(path: Path, content: Mapping[str, object] | None) -> int | None:
    """The supported version in the content of ``run_summary.json``; None where there is none.

    Raises:
        SchemaError: the version is not the integer 1.
    """
    if content is None or STAMP not in content:
        return None
    check_version(content[STAMP], f"{path}: {STAMP}")
    return METRIC_SCHEMA_VERSION


def check_version(value: object, where: str) -> None:
    """Refuse everything but the integer 1: true, 1.0, "1", NaN, null and other versions.

    Raises:
        SchemaError: beginning with `where`.
    """
    if type(value) is not int:
        raise SchemaError(
            f"{where} must be the integer {METRIC_SCHEMA_VERSION}; got {json.dumps(value)}: "
            "the file has been altered: restore it"
        )
    if value != METRIC_SCHEMA_VERSION:
        raise SchemaError(
            f"{where} is {value}, and this version of Drivetrain reads "
            f"{METRIC_SCHEMA_VERSION} alone: use the version that wrote the run"
        )


def check_manifest(path: Path, content: Mapping[str, object] | None) -> None:
    """Refuse a run whose runtime manifest has been altered, taken out, or is of another version.

    Args:
        path: Of ``run_summary.json``.
        content: Its content. A run that is not completed may have none yet, and some algorithms
            never have one.

    Raises:
        SchemaError: naming each field that is missing or wrong.
    """
    if content is None:
        return
    completed = content.get("status") == RunStatus.COMPLETED
    manifest = content.get("runtime_manifest")
    if manifest is None:
        if completed and content.get("algo") not in _WITHOUT_MANIFEST:
            raise SchemaError(
                f"{path}: a completed run of {content.get('algo')} without runtime_manifest, "
                "which every such run has: restore the file"
            )
        return
    try:
        read_manifest(manifest, completed=completed)
    except ArtifactError as error:
        raise SchemaError(f"{path}: runtime_manifest: {error}: restore the file") from error


def check_canonical(
    stamp: int | None, summary: Path, tags: Mapping[str, Path], schema: MetricSchema
) -> None:
    """Refuse what is not a whole log of metric schema 1.

    Args:
        stamp: Version in `summary`; None where there is none.
        summary: Path of ``run_summary.json``.
        tags: Tag -> a file that holds it.
        schema: With the families that the run declares.

    Raises:
        SchemaError: naming file, tag and what to do.
    """
    kinds = {tag: kind_of(tag, schema) for tag in tags}
    legacy = _first(kinds, TagKind.LEGACY)
    canonical = _first(kinds, TagKind.CANONICAL)
    if legacy is not None and canonical is not None:
        raise SchemaError(_mixed(tags, legacy, canonical))
    if legacy is not None and stamp is not None:
        raise SchemaError(
            f"{tags[legacy]}: the retired tag {legacy!r} in a run that {summary} stamps with "
            f"metric schema {stamp}: the file belongs to another run: move it out of the directory"
        )
    if legacy is not None:
        raise SchemaError(
            f"{tags[legacy]}: the retired tag {legacy!r} and no {STAMP} in {summary}: a log from "
            "before the metric schema: read it with drivetrain extract --legacy-unversioned"
        )
    unknown = _first(kinds, TagKind.UNKNOWN)
    if unknown is not None:
        raise SchemaError(_unknown(tags, unknown, schema))
    if stamp is None:
        held = canonical or next(iter(tags), None)
        what = "" if held is None else f", so the tag {held!r} in {tags[held]} means nothing"
        raise SchemaError(
            f"{summary}: no {STAMP}{what}: a run has this file from its start: restore it "
            "beside the files of its metrics"
        )


def check_legacy(
    stamp: int | None, summary: Path, tags: Mapping[str, Path], schema: MetricSchema
) -> None:
    """Refuse what is not wholly a log from before the metric schema; as `check_canonical`.

    Raises:
        SchemaError: naming file, tag and what to do.
    """
    if stamp is not None:
        raise SchemaError(
            f"{summary}: {STAMP} is {stamp}: a stamped run is no legacy run: leave "
            "--legacy-unversioned out"
        )
    kinds = {tag: kind_of(tag, schema) for tag in tags}
    canonical = _first(kinds, TagKind.CANONICAL)
    legacy = _first(kinds, TagKind.LEGACY)
    if canonical is not None and legacy is not None:
        raise SchemaError(_mixed(tags, legacy, canonical))
    if canonical is not None:
        raise SchemaError(
            f"{tags[canonical]}: the canonical tag {canonical!r}: a log of the metric schema that "
            f"has lost its stamp is no legacy log: restore {summary} and leave "
            "--legacy-unversioned out"
        )
    unknown = _first(kinds, TagKind.UNKNOWN)
    if unknown is not None:
        raise SchemaError(
            f"{tags[unknown]}: the tag {unknown!r} is not one that Drivetrain's predecessors "
            "wrote: --legacy-unversioned reads recognised tags alone"
        )
    if tags and legacy is None:
        tag = next(iter(tags))
        raise SchemaError(
            f"{tags[tag]}: no recognised legacy tag, only such as {tag!r}, which says nothing "
            "of the time of the log"
        )


def _first(kinds: Mapping[str, TagKind], wanted: TagKind) -> str | None:
    return next((tag for tag, kind in sorted(kinds.items()) if kind is wanted), None)


def _mixed(tags: Mapping[str, Path], legacy: str, canonical: str) -> str:
    other = "it" if tags[legacy] == tags[canonical] else str(tags[canonical])
    return (
        f"{tags[legacy]}: the retired tag {legacy!r}, and {other} holds the canonical tag "
        f"{canonical!r}: a mixed log is not read: move the files of one run into a directory "
        "of their own"
    )


def _unknown(tags: Mapping[str, Path], tag: str, schema: MetricSchema) -> str:
    near = difflib.get_close_matches(tag, METRICS, n=1, cutoff=0.8)
    meant = f" (near: {near[0]})" if near else ""
    prefixes = ", ".join(family.prefix for family in schema.families)
    return (
        f"{tags[tag]}: the tag {tag!r} is neither of metric schema {METRIC_SCHEMA_VERSION}{meant} "
        f"nor of a declared family ({prefixes}): move files that the run did not write out of "
        "the directory"
    )


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key stands twice")
    return content
