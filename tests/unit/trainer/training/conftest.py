from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny_run import Ranks

from drivetrain_trainer import stats


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    """Attempts of one run below a temporary storage root; handlers and threads restored."""
    threads = torch.get_num_threads()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    torch.set_num_threads(1)
    stats.forget_all()
    made = Ranks(tmp_path)
    yield made
    for attempt in made.made:
        attempt.collector.stop(0.0)
    torch.set_num_threads(threads)
    for number, handler in handlers.items():
        signal.signal(number, handler)
