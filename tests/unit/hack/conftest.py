"""The kind program itself: it reads its configuration before it needs an engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.kubernetes.programs import Program
from tests.support.needed import demand, get_ahead

HERE = Path(__file__).parent


def pytest_collection_finish(session: pytest.Session) -> None:
    get_ahead(session, HERE, Program.KIND)


def pytest_runtest_setup(item: pytest.Item) -> None:
    demand(item, HERE)
