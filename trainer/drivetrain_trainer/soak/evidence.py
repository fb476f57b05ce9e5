"""What a run's last summary must say for its soak to pass; each check names what it found.

Sums over ranks (environment steps) are never held against counters of one rank (ingress
sequences), chunks never against vectors: slot rows need not divide the environments, a chunk
may be dropped at a normal stop, and a resumed run's counters begin anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_summary import RunSummary
from drivetrain_api.artifacts.runtime_manifest import RUNTIME_MANIFEST_VERSION, read_manifest
from drivetrain_api.artifacts.soak import (
    MonitorFailure,
    SoakFinding,
    completion_problem,
    producer_failure,
)
from drivetrain_api.metrics import METRIC_SCHEMA_VERSION
from drivetrain_trainer.soak.summary import section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_trainer.soak.summary import Document, SummaryWatch

_MESSAGE_LIMIT: Final = 2048
_ABSENT: Final = object()


def shutdown_of(document: Document | None) -> Document | None:
    """The producer's own words on its shutdown, as they came."""
    return section(document, "runtime_manifest", "shutdown")


def version_findings(document: Document | None) -> Iterator[SoakFinding]:
    """Versions that this monitor does not know; one that is absent is not guessed."""
    if document is None:
        return
    found = document.get("metric_schema_version", _ABSENT)
    if not _is(found, METRIC_SCHEMA_VERSION):
        yield _version("metric_schema_version", found, METRIC_SCHEMA_VERSION)
    manifest = document.get("runtime_manifest")
    if manifest is None:
        return
    found = manifest.get("schema_version", _ABSENT) if isinstance(manifest, Mapping) else manifest
    if not _is(found, RUNTIME_MANIFEST_VERSION):
        yield _version("runtime_manifest.schema_version", found, RUNTIME_MANIFEST_VERSION)


def torn_findings(watch: SummaryWatch) -> Iterator[SoakFinding]:
    """A summary that was ever there without being whole: it must be replaced atomically."""
    if watch.torn is not None:
        yield _summary("summary.torn", f"run_summary.json is not whole: {watch.torn}")
    elif watch.torn_reads:
        words = f"run_summary.json was not whole {watch.torn_reads} time(s) while the run went on"
        yield _summary("summary.torn", words)


def completion_findings(document: Document | None) -> Iterator[SoakFinding]:
    """Why a run that exited with 0 has not shown that it completed."""
    if document is None:
        yield _summary("summary.missing", "the run left no run_summary.json")
        return
    status = document.get("status")
    if status != RunStatus.COMPLETED:
        yield _summary("summary.status", f"status is {status!r}, not {RunStatus.COMPLETED.value!r}")
    yield from _field_findings(document)
    shutdown = shutdown_of(document)
    problem = completion_problem(shutdown)
    if problem is not None:
        told = producer_failure(shutdown)
        kind = MonitorFailure.SUMMARY if told is None else MonitorFailure.CRASH
        yield SoakFinding(rule="shutdown", classification=kind, message=problem[:_MESSAGE_LIMIT])


def _field_findings(document: Document) -> Iterator[SoakFinding]:
    """Fields that are missing or wrong: the manifest's by its own name, then the summary's."""
    manifest = document.get("runtime_manifest")
    if manifest is None:
        yield _summary("manifest.missing", "run_summary.json has no runtime_manifest")
    else:
        try:
            read_manifest(manifest, completed=True)
        except ArtifactError as error:
            yield _summary("manifest.fields", str(error))
            return
    try:
        RunSummary.from_json(json.dumps(document))
    except ArtifactError as error:
        yield _summary("summary.fields", str(error))


def _is(found: object, version: int) -> bool:
    """Exactly that integer: 1.0, true and "1" are none."""
    return type(found) is int and found == version


def _version(path: str, found: Any, wanted: int) -> SoakFinding:  # noqa: ANN401 - any JSON value
    told = "missing" if found is _ABSENT else f"{found!r}"[:256]
    words = f"{path} is {told}: only {wanted} is supported"
    return SoakFinding(rule="version", classification=MonitorFailure.VERSION, message=words)


def _summary(rule: str, words: str) -> SoakFinding:
    return SoakFinding(
        rule=rule, classification=MonitorFailure.SUMMARY, message=words[:_MESSAGE_LIMIT]
    )
