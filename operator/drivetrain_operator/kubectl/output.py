"""Answers for programs: `-o json` and `-o yaml`, as the API server holds them."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from drivetrain_operator.yaml_core import dump

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Format(StrEnum):
    """What `-o` takes."""

    JSON = "json"
    YAML = "yaml"


def without_managers(raw: Mapping[str, Any]) -> dict[str, Any]:
    """An object without `metadata.managedFields`, which is of no use to anybody here."""
    metadata = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    return {**raw, "metadata": metadata}


def rendered(content: Mapping[str, Any], form: Format) -> str:
    """One object as text, with a line break at its end."""
    if form is Format.JSON:
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return dump(content, nulls=True)


def listing(raws: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Objects as one `List`, as kubectl prints several."""
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [without_managers(raw) for raw in raws],
    }
