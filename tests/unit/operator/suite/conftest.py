from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from suite_files import TEMPLATE

from drivetrain_operator.suite.suite_file import SuiteFile, load


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory of every test: empty, and no state of others in reach."""
    monkeypatch.chdir(tmp_path)
    for name in ("DRIVETRAIN_STATE_DIR", "DRIVETRAIN_LAUNCHER", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Callable[..., Path]:
    """Writes ``suite.yaml`` with these parts of the spec."""

    def written(*, name: str = "swing", template: Any = None, **spec: Any) -> Path:
        content = {
            "apiVersion": "drivetrain.dev/v1alpha1",
            "kind": "Suite",
            "metadata": {"name": name},
            "spec": {"template": template if template is not None else TEMPLATE, **spec},
        }
        if spec.get("templateFile"):
            del content["spec"]["template"]
        path = folder / "suite.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    return written


@pytest.fixture
def suite_file(write: Callable[..., Path]) -> Callable[..., SuiteFile]:
    """A suite file that was written and read."""

    def made(**parts: Any) -> SuiteFile:
        write(**parts)
        return load("suite.yaml")

    return made
