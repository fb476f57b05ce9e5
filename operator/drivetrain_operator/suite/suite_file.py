"""A suite file and the template that it holds or names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivetrain_api.base import KIND
from drivetrain_api.errors import SpecError
from drivetrain_api.explain import plain_object
from drivetrain_api.suite import parse_suite
from drivetrain_operator.cli.making import STANDARD_INPUT, read
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.manifest_file import ManifestDocument
from drivetrain_operator.suite.search import reserved, set_paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.suite import Suite


@dataclass(frozen=True)
class SuiteFile:
    """A suite file and its template."""

    suite: Suite
    source: ManifestDocument
    """The suite file."""
    template: Mapping[str, Any]
    """The spec that members share."""
    template_source: ManifestDocument
    """Where the template stands, its spec at ``spec``."""

    @property
    def name(self) -> str:
        """Name of the suite."""
        return self.suite.metadata.name


def load(file: str) -> SuiteFile:
    """Read a suite file, and the template that it names.

    Args:
        file: A path, or ``-`` for standard input.

    Raises:
        Refusal: with the place of everything that is wrong.
    """
    source = read(file)
    try:
        suite = parse_suite(source.content)
    except SpecError as error:
        raise Refusal([f"{source.place(v.path)}: {v}" for v in error.violations]) from None
    if suite.spec.template is not None:
        below = ("spec", "template")
        lines = {
            ("spec", *path[2:]): line for path, line in source.lines.items() if path[:2] == below
        }
        template = plain_object(source.content["spec"]["template"])
        template_source = ManifestDocument(source.source, {"spec": template}, lines)
    else:
        assert suite.spec.template_file is not None
        beside = Path.cwd() if file == STANDARD_INPUT else Path(file).parent
        template_source = read(str(beside / suite.spec.template_file))
        template = plain_object(template_source.content.get("spec"))
        if template_source.content.get("kind") != KIND or not template:
            words = f"is no manifest of kind {KIND} with a spec, as templateFile names one"
            raise Refusal([f"{template_source.source}: {words}"])
    found = SuiteFile(suite, source, template, template_source)
    _refuse_reserved(found)
    return found


def _refuse_reserved(file: SuiteFile) -> None:
    lines = [
        f"{file.template_source.place(path)}: {path}: no template sets it: {why}"
        for path in set_paths(file.template)
        if (why := reserved(path)) is not None and not path.startswith("experiment.")
    ]
    if lines:
        raise Refusal(lines)
