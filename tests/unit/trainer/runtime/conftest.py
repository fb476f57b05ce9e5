"""Children of these tests import their targets from `support`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

from trials import Server  # from `support`

from drivetrain_trainer.runtime.child_process import ChildProcess  # likewise


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with ChildProcess.spawn("trials:serve", "server of trials") as child:
        yield Server(child)
