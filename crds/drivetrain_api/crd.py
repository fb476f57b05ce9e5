"""The CustomResourceDefinition, generated from the models.

``python -m drivetrain_api.crd`` writes the committed files, ``--check`` fails where one differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from drivetrain_api.base import GROUP, KIND, VERSION
from drivetrain_api.crd_rules import RULES
from drivetrain_api.crd_schema import PRESERVE, structural
from drivetrain_api.schema import Schema, inlined_schema
from drivetrain_api.status import TrainingRunStatus
from drivetrain_api.trainingrun import ObjectMeta, TrainingRunSpec

PLURAL: Final = "trainingruns"
CRD_NAME: Final = f"{PLURAL}.{GROUP}"
COMMITTED: Final = Path("crds") / f"{CRD_NAME}.yaml"
"""Where the repository holds it, from its root."""
CHART_COPY: Final = Path("charts") / "drivetrain" / "files" / f"{CRD_NAME}.yaml"
"""The chart's own copy: a package of the chart holds nothing from outside its folder."""

KEEPS_UNKNOWN_FIELDS: Final = ("training", "env")
"""Sections of the spec with retired keys: the operator answers them with what to use instead,
which it could not if the server pruned them."""

_COLUMNS: Final = (
    ("Phase", "string", ".status.phase", "Phase of the run.", 0),
    ("Algo", "string", ".spec.algo.name", "Algorithm.", 0),
    ("Task", "string", ".spec.task.name", "Task.", 0),
    ("Ranks", "integer", ".status.ranks", "Ranks of an attempt.", 0),
    ("Progress", "string", ".status.done", "How far the run is.", 0),
    ("Steps/s", "string", ".status.progress.stepsPerSecond", "Throughput over all ranks.", 0),
    ("Reward", "string", ".status.progress.meanReward", "Mean return of 100 episodes.", 0),
    ("Restarts", "integer", ".status.restarts", "Counted failures.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since its creation.", 0),
    ("Attempt", "integer", ".status.attempt", "Current or last attempt.", 1),
    ("EnvSteps", "integer", ".status.progress.envSteps", "Environment steps done.", 1),
    ("ETA(s)", "integer", ".status.progress.etaSeconds", "Estimated seconds to the end.", 1),
    ("Evaluated", "string", ".status.progress.evaluatedReturn", "Latest evaluated return.", 1),
    ("Message", "string", ".status.message", "Why the run is in its phase.", 1),
)


def custom_resource_definition() -> dict[str, Any]:
    """The whole CustomResourceDefinition as plain JSON data, in a stable order."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["trun", "tr"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in _COLUMNS],
                    "schema": {"openAPIV3Schema": resource_schema()},
                }
            ],
        },
    }


def _column(
    name: str, kind: str, json_path: str, description: str, priority: int
) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": json_path, "description": description}
    return {**column, "priority": priority} if priority else column


def resource_schema() -> Schema:
    """The structural schema of a TrainingRun."""
    spec = structural(inlined_schema(TrainingRunSpec, by_alias=True), path="spec")
    status = structural(
        inlined_schema(TrainingRunStatus, by_alias=True), path="status", nullable=False
    )
    for section in KEEPS_UNKNOWN_FIELDS:
        spec["properties"][section][PRESERVE] = True
    schema: Schema = {
        "description": "Trains a policy by reinforcement learning.",
        "type": "object",
        "required": ["metadata", "spec"],
        "properties": {
            "apiVersion": {"description": "drivetrain.dev/v1alpha1.", "type": "string"},
            "kind": {"description": "TrainingRun.", "type": "string"},
            "metadata": {"type": "object", "properties": {"name": _name()}},
            "spec": spec,
            "status": status,
        },
    }
    for path, rules in RULES.items():
        place = _at(schema, path)
        place["x-kubernetes-validations"] = [rule.to_wire() for rule in rules]
    return schema


def _name() -> Schema:
    name = inlined_schema(ObjectMeta, by_alias=True)["properties"]["name"]
    return {"type": "string", "pattern": name["pattern"]}


def _at(schema: Schema, path: str) -> Schema:
    for key in path.split(".") if path else ():
        schema = schema["properties"][key]
    return schema


def render() -> str:
    """The CustomResourceDefinition as YAML, the content of the committed file."""
    import yaml  # noqa: PLC0415 - importing the contract pulls pydantic and nothing heavier

    plain = json.loads(json.dumps(custom_resource_definition()))  # shared parts: no YAML anchors
    text: str = yaml.safe_dump(plain, sort_keys=False, width=100, allow_unicode=True)
    return f"# Generated from the models by `python -m drivetrain_api.crd`.\n{text}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the committed files, or check them; 1 where one differs from the models."""
    parser = argparse.ArgumentParser(prog="python -m drivetrain_api.crd", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--path", type=Path, help=f"default: {COMMITTED} and {CHART_COPY}")
    options = parser.parse_args(arguments)
    paths: tuple[Path, ...] = (options.path,) if options.path else (COMMITTED, CHART_COPY)
    if not options.check:
        for path in paths:
            path.write_text(render(), encoding="utf-8")
        return 0
    differing = [path for path in paths if not _holds(path)]
    for path in differing:
        sys.stderr.write(f"{path} differs from the models: run python -m drivetrain_api.crd\n")
    return 1 if differing else 0


def _holds(path: Path) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == render()


if __name__ == "__main__":
    sys.exit(main())
