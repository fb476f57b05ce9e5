"""From a request on the command line to a manifest that was checked whole."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api.base import API_VERSION, KIND
from drivetrain_api.compose import compose, parse_run, resolve_task
from drivetrain_api.errors import SpecError
from drivetrain_api.overrides import apply_overrides
from drivetrain_api.suite import KIND as SUITE
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.manifest_file import (
    MAX_BYTES,
    ManifestDocument,
    ManifestError,
    parse,
    read_manifest,
)
from drivetrain_operator.manifests.overlay_rules import overlay_violations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.errors import Violation
    from drivetrain_api.tasks import TaskSpec
    from drivetrain_api.trainingrun import TrainingRun, TrainingRunSpec

STANDARD_INPUT: Final = "-"
_COMMAND_LINE: Final = "command line"


@dataclass(frozen=True)
class Request:
    """What was asked for: a file or the parts of a manifest, and overrides over either."""

    file: str | None = None
    """Path of a manifest, or ``-``."""
    algo: str | None = None
    task: str | None = None
    sim: str | None = None
    name: str | None = None
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """A manifest that nothing speaks against, wherever it may run."""

    run: TrainingRun
    task: TaskSpec
    composed: TrainingRunSpec
    source: ManifestDocument
    overrides: tuple[str, ...]

    def refusal(self, violations: tuple[Violation, ...], hint: str = "") -> Refusal:
        """A refusal that places each violation in the file or on the command line."""
        return Refusal([_placed(v, self.source, self.overrides) for v in violations], hint)


def make(request: Request) -> Wanted:
    """Read or make the manifest, apply the overrides, and check all that needs no machine.

    Imports the module of a ``task.entry_point``, from the current directory too.

    Raises:
        Refusal: with every violation that was found.
    """
    source = _document(request)
    if source.content.get("kind") == SUITE:
        words = f"{source.place('kind')}: kind: is {SUITE}, not {KIND}"
        raise Refusal([words], "drivetrain suite trains it, and checks it with --dry-run")
    try:
        content = apply_overrides(_named(source.content, request.name), request.overrides)
    except SpecError as error:
        raise Refusal([f"{_COMMAND_LINE}: {violation}" for violation in error.violations]) from None
    try:
        run, task, composed = checked(content)
    except SpecError as error:
        places = [_placed(v, source, request.overrides) for v in error.violations]
        raise Refusal(places) from None
    return Wanted(run, task, composed, source, request.overrides)


def checked(content: Mapping[str, Any]) -> tuple[TrainingRun, TaskSpec, TrainingRunSpec]:
    """The run that a document is, its task, and its spec composed.

    Imports the module of a ``task.entry_point``, from the current directory too.

    Raises:
        SpecError: with every violation that was found.
    """
    run = parse_run(content)
    _refuse(overlay_violations(run.spec.pod_template))
    if run.spec.task.entry_point is not None and "" not in sys.path:
        sys.path.insert(0, "")  # as with `python -m`: the task may be a file right here
    task = resolve_task(run.spec)
    _refuse_overrides(run, task)
    return run, task, compose(run.spec, task)


def read(file: str) -> ManifestDocument:
    """The manifest in `file`, or on standard input.

    Raises:
        Refusal: it is no acceptable YAML document.
    """
    try:
        if file == STANDARD_INPUT:
            return parse(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
        return read_manifest(Path(file))
    except ManifestError as error:
        raise Refusal([str(error)]) from None


def _document(request: Request) -> ManifestDocument:
    if request.file is not None:
        return read(request.file)
    assert request.algo is not None
    assert request.task is not None
    spec: dict[str, Any] = {"algo": {"name": request.algo}, "task": {"name": request.task}}
    if request.sim is not None:
        spec["sim"] = request.sim
    name = f"{request.task}-{request.algo}".replace("_", "-")
    return ManifestDocument(
        _COMMAND_LINE,
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec},
    )


def _named(content: dict[str, Any], name: str | None) -> dict[str, Any]:
    metadata = content.get("metadata")
    if name is None or not isinstance(metadata, dict | None):
        return content
    return {**content, "metadata": {**(metadata or {}), "name": name}}


def _refuse(violations: tuple[Violation, ...]) -> None:
    if violations:
        raise SpecError(violations)


def _refuse_overrides(run: TrainingRun, task: TaskSpec) -> None:
    task.resolve_overrides(run.spec.task.overrides)


def _placed(violation: Violation, source: ManifestDocument, overrides: tuple[str, ...]) -> str:
    """``place: path: message``; a value that an override set is the command line's."""
    keys = (_folded(text.partition("=")[0]) for text in overrides)
    path = _folded(violation.path)
    if any(path == key or path.startswith(f"{key}.") for key in keys):
        return f"{_COMMAND_LINE}: {violation}"
    return f"{source.place(violation.path)}: {violation}"


def _folded(path: str) -> str:
    return path.removeprefix("spec.").replace("_", "").lower()
