from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from wandb_server import WandbServer
from wandb_trial import reachable_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[WandbServer]:
    """The service of Weights & Biases; the home is empty."""
    home = tmp_path / "home"
    home.mkdir()
    with reachable_server(monkeypatch, home) as found:
        yield found
