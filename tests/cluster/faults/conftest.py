"""Operators to be troubled, and control planes that may be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.cluster.conftest import DEFINITION
from tests.cluster.faults.lab import Lab
from tests.support.kubernetes.control_plane import ControlPlane


@pytest.fixture
def lab(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Lab]:
    """An operator that works; each run's first attempt fails, its second one is done."""
    with Lab(control_plane, namespace, tmp_path / "lab") as made:
        made.operator.start()
        yield made


@pytest.fixture(scope="session")
def frail_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose servers a test may stop: nobody else is at it."""
    definition = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))
    with ControlPlane(tmp_path_factory.mktemp("frail-plane"), definitions=[definition]) as plane:
        yield plane
