"""A control plane shared by the session, with our definition installed, and a namespace a test.

Where its programs cannot be had, the tests say so in one line and are not run; with ``CI=true``
in the environment that is a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.programs import (
    CONTROL_PLANE,
    MissingProgramsError,
    ensure,
    required,
)
from tests.support.kubernetes.proxy import Proxy

HERE = Path(__file__).parent
DEFINITION = HERE.parents[1] / "crds" / "trainingruns.drivetrain.dev.yaml"
MISSING = pytest.StashKey[str]()
"""Why programs cannot be had."""


@pytest.hookimpl(tryfirst=True)  # before items are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here need the API server."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get the programs before any test's time runs: a build takes minutes, and tells so."""
    here = any(HERE in item.path.parents for item in session.items)
    if not here or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        try:
            ensure(*CONTROL_PLANE)
        except MissingProgramsError as error:
            session.config.stash[MISSING] = str(error)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say what is missing; from here, so that the summary folds it into one line."""
    missing = item.config.stash.get(MISSING, None)
    if missing and required():
        pytest.fail(f"cluster tests cannot run: {missing}", pytrace=False)
    if missing:
        pytest.skip(f"cluster tests not run: {missing}")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, API server and controller manager; TrainingRuns are served."""
    definition = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), definitions=[definition]) as plane:
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


@pytest.fixture
def proxy(control_plane: ControlPlane) -> Iterator[Proxy]:
    """In front of the API server, to count calls and inject faults; `kubeconfig` goes past it."""
    with Proxy(control_plane, keep_bodies=True) as started:
        yield started
