"""A control plane shared by the session, with our definition installed, and a namespace a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.programs import MissingProgramsError

HERE = Path(__file__).parent
DEFINITION = HERE.parents[1] / "crds" / "trainingruns.drivetrain.dev.yaml"


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, API server and controller manager; TrainingRuns are served."""
    try:
        plane = ControlPlane(
            tmp_path_factory.mktemp("control-plane"),
            definitions=[yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))],
        )
    except MissingProgramsError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"cluster tests cannot run: {error}")
        pytest.skip(f"cluster tests not run: {error}")
    with plane:
        yield plane


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Api:
    """An administrator's view of the API server."""
    return control_plane.api


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """The name of a fresh namespace; its removal is begun at the end and not waited for."""
    name: str = api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
    )["metadata"]["name"]
    yield name
    api.delete("v1", "Namespace", name)


@pytest.fixture
def kubeconfig(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Path:
    """An administrator's, with the test's namespace as its default."""
    return control_plane.write_kubeconfig(tmp_path / "kubeconfig", namespace=namespace)
