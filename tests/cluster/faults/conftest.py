"""Operators to be troubled, and control planes that may be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.cluster.conftest import DEFINITION
from tests.cluster.faults.lab import Lab, namespace_of
from tests.support.kubernetes.control_plane import ControlPlane


@pytest.fixture(scope="module")
def lab(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """An operator that works, for all tests of a module: each names its runs as nobody else."""
    folder = tmp_path_factory.mktemp("lab")
    with (
        namespace_of(control_plane.api) as namespace,
        Lab(control_plane, namespace, folder) as made,
    ):
        made.operator.start()
        yield made


@pytest.fixture
def own_lab(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Lab]:
    """An operator that works, in a namespace that is the test's alone."""
    with Lab(control_plane, namespace, tmp_path / "lab") as made:
        made.operator.start()
        yield made


@pytest.fixture(scope="session")
def frail_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose servers a test may stop: nobody else is at it."""
    definition = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))
    with ControlPlane(tmp_path_factory.mktemp("frail-plane"), definitions=[definition]) as plane:
        yield plane
