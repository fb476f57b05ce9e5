"""The chart as the helm program renders it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.chart import Helm, Object
from tests.support.kubernetes.programs import Program, ensure
from tests.support.needed import demand, get_ahead

HERE = Path(__file__).parent


def pytest_collection_finish(session: pytest.Session) -> None:
    get_ahead(session, HERE, Program.HELM)


def pytest_runtest_setup(item: pytest.Item) -> None:
    demand(item, HERE)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(ensure(Program.HELM)[Program.HELM], tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def default(helm: Helm) -> list[Object]:
    """What the chart gives as it comes; not to be changed."""
    return helm.template()
