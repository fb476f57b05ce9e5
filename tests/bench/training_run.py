"""A real training run by the rank's own entry, and the figures of its event file."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.support.rank_command import COMMAND, environment, write_attempt


def train(spec: Mapping[str, Any], *, skip: float = 0.4) -> dict[str, float]:
    """Train, and give the median of each tag over the reports after the first `skip` of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        write_attempt(path, spec)
        subprocess.run(COMMAND, cwd=path, env=environment(), check=True, capture_output=True)
        (events,) = path.glob("logs/*/*/*/events.out.tfevents.*")
        return medians(events, skip)


def medians(events: Path, skip: float) -> dict[str, float]:
    """Median of each tag of an event file, its beginning left out."""
    accumulator = EventAccumulator(str(events), size_guidance={"scalars": 0})
    accumulator.Reload()
    found = {}
    for tag in accumulator.Tags()["scalars"]:
        values = [event.value for event in accumulator.Scalars(tag)]
        kept = values[int(skip * len(values)) :]
        if kept:
            found[tag] = statistics.median(kept)
    return found
