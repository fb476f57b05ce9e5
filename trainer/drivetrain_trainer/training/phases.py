"""The learner's main-thread timeline: mutually exclusive phases of one iteration."""

from __future__ import annotations

import time
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from drivetrain_trainer.telemetry.timeline import ITERATION_TIME, LEARNING_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator


class Phase(StrEnum):
    """Exclusive phases (their sum is at most Iter Wall) and nested ones; values are tags."""

    COLLECTOR_WAIT = "Perf/learner_collector_wait_ms"
    INFERENCE = "Perf/learner_inference_ms"
    COLLECTOR_RELEASE = "Perf/learner_collector_release_ms"
    REPLAY_BATCH_WAIT = "Perf/learner_replay_batch_wait_ms"
    REPLAY_SAMPLE = "Perf/learner_replay_sample_ms"
    LEARNING = LEARNING_TIME
    INFERENCE_FORWARD = "Perf/learner_inference_forward_ms"


class PhaseTimeline:
    """Sums phases over the iterations since the last report; monotonic clock."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(Phase, 0)
        self._wall = 0
        self._iterations = 0
        self._started: int | None = None

    def begin(self) -> None:
        """An iteration starts."""
        self._started = time.perf_counter_ns()

    @contextmanager
    def measure(self, phase: Phase) -> Iterator[None]:
        """Time a phase of the current iteration."""
        started = time.perf_counter_ns()
        try:
            yield
        finally:
            self._sums[phase] += time.perf_counter_ns() - started

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Leave out work at a boundary (evaluation, checkpoint) that is no iteration's."""
        started = time.perf_counter_ns()
        try:
            yield
        finally:
            if self._started is not None:
                self._started += time.perf_counter_ns() - started

    def end(self) -> None:
        """The iteration is complete: only complete ones are reported."""
        if self._started is None:
            return
        self._wall += time.perf_counter_ns() - self._started
        self._iterations += 1
        self._started = None

    def report(self) -> dict[str, float]:
        """Means since the last report by tag, in the unit that the tag states; resets them."""
        if self._iterations == 0:
            return {}
        milliseconds = 1e-6 / self._iterations
        values = {
            phase.value: total * (milliseconds * 1e-3 if phase is Phase.LEARNING else milliseconds)
            for phase, total in self._sums.items()
        }
        values[ITERATION_TIME] = self._wall * milliseconds * 1e-3
        self._sums = dict.fromkeys(Phase, 0)
        self._wall = self._iterations = 0
        return values
