"""A control plane of the chart's tests' own, on which helm installs everything itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.chart import CHART, NAMESPACE, RELEASE, Helm, Object
from tests.support.kubernetes.api import Api, wait_for
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.programs import Program, ensure
from tests.support.needed import demand, get_ahead

from drivetrain_api.trainingrun import TrainingRun

HERE = Path(__file__).parent
TRAINING_RUN = "drivetrain.dev/v1alpha1", "TrainingRun"


def pytest_collection_finish(session: pytest.Session) -> None:
    get_ahead(session, HERE, Program.HELM, Program.KUBECTL)


def pytest_runtest_setup(item: pytest.Item) -> None:
    demand(item, HERE)


def training_run(name: str, **spec: object) -> Object:
    return {
        "apiVersion": TRAINING_RUN[0],
        "kind": TRAINING_RUN[1],
        "metadata": {"name": name},
        "spec": {"algo": {"name": "sac"}, "task": {"name": "half_cheetah"}, **spec},
    }


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Without our definition: the chart brings it."""
    with ControlPlane(tmp_path_factory.mktemp("chart-control-plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def api(plane: ControlPlane) -> Api:
    """An administrator's view."""
    return plane.api


@pytest.fixture(scope="session")
def helm(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """As an administrator."""
    return Helm(
        ensure(Program.HELM)[Program.HELM], tmp_path_factory.mktemp("helm"), plane.kubeconfig
    )


@pytest.fixture(scope="session")
def installed(helm: Helm) -> str:
    """The chart as it comes, for the whole cluster; the namespace of the operator."""
    helm.run("install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace")
    return NAMESPACE


@pytest.fixture
def account(plane: ControlPlane) -> Iterator[Callable[[str, str], Api]]:
    """Gives the view of a ServiceAccount, by its namespace and name."""
    views: list[Api] = []

    def view(namespace: str, name: str) -> Api:
        wait_for(lambda: plane.api.find("v1", "ServiceAccount", name, namespace), f"account {name}")
        views.append(Api(plane.url, plane.account_token(namespace, name), plane.authority))
        return views[-1]

    yield view
    for each in views:
        each.close()


@pytest.fixture
def make_run(
    api: Api,
    namespace: str,
    installed: str,  # noqa: ARG001 - it brings the definition
) -> Callable[..., TrainingRun]:
    """Makes a TrainingRun in the test's namespace, as a user does."""

    def make(name: str, **spec: object) -> TrainingRun:
        return TrainingRun.model_validate(
            api.create(training_run(name, **spec), namespace=namespace)
        )

    return make
