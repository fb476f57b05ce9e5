"""The helm program; without it the chart's tests say in one line that they did not run."""

from __future__ import annotations

import os

import pytest
from tests.support.chart import Helm, Object
from tests.support.kubernetes.programs import MissingProgramsError, Program, ensure


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    try:
        program = ensure(Program.HELM)[Program.HELM]
    except MissingProgramsError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"chart tests cannot run: {error}")
        pytest.skip(f"chart tests not run: {error}")
    return Helm(program, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def default(helm: Helm) -> list[Object]:
    """What the chart gives as it comes; not to be changed."""
    return helm.template()
