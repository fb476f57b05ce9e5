from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

# Test folders are no packages; what is beside this file is shared by its tests.
sys.path.insert(0, str(Path(__file__).parent))

from kubectl_api import FakeApi
from kubectl_objects import NOW, pod, training_run

from drivetrain_operator.kubectl import describe, listing
from drivetrain_operator.kubectl.main import cli


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages are told as of one moment."""
    for module in (describe, listing):
        monkeypatch.setattr(module, "now", lambda: NOW)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """A cluster with one running run of two pods."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "140")
    with FakeApi(tmp_path) as fake:
        fake.put("trainingruns", training_run())
        fake.put("pods", pod(index=0))
        fake.put("pods", pod(index=1))
        yield fake


@pytest.fixture
def drivetrain(api: FakeApi) -> Callable[..., Result]:
    """Run a command of the plugin against the fake."""

    def call(*words: str) -> Result:
        return CliRunner().invoke(cli, [*words, "--kubeconfig", str(api.kubeconfig)])

    return call
