"""The soak section of a manifest that ``drivetrain run`` is about to check whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from drivetrain_api.compose import parse_run
from drivetrain_api.errors import SpecError
from drivetrain_api.overrides import apply_overrides
from drivetrain_trainer.cli.soak_command import SoakCommandError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from drivetrain_api.soak import SoakConfig


def soak_of(path: Path, overrides: Sequence[str]) -> SoakConfig | None:
    """What the manifest asks of a soak; None where it asks for none.

    Raises:
        SoakCommandError: it cannot be read, is no TrainingRun, or its algorithm cannot be soaked.
    """
    try:
        document: Any = yaml.safe_load(path.read_bytes())
        if not isinstance(document, dict) or not isinstance(document.get("spec"), dict):
            raise SoakCommandError(f"{path}: not a TrainingRun")
        document = apply_overrides(document, [text for text in overrides if text[:1] != "-"])
        if document["spec"].get("soak") is None:
            document["spec"]["soak"] = {}  # brings up what a soak itself refuses
        return parse_run(document).spec.soak
    except OSError as error:
        raise SoakCommandError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, SpecError) as error:
        raise SoakCommandError(f"{path}: {error}") from error
