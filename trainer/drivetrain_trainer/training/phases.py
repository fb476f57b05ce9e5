"""The learner's main-thread timeline: mutually exclusive phases of one iteration."""

from __future__ import annotations

import time
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self

from drivetrain_api.metrics import METRICS
from drivetrain_trainer.telemetry.timeline import ITERATION_TIME, LEARNING_TIME
from drivetrain_trainer.tracing import NULL_TRACER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from drivetrain_trainer.tracing import Tracer
    from drivetrain_trainer.tracing.tracer import GpuMark

_GPU_TRACK: Final = "GPU main stream"


class Phase(StrEnum):
    """Exclusive phases (their sum is at most Iter Wall) and nested ones; values are tags."""

    COLLECTOR_WAIT = "Perf/learner_collector_wait_ms"
    INFERENCE = "Perf/learner_inference_ms"
    COLLECTOR_RELEASE = "Perf/learner_collector_release_ms"
    REPLAY_BATCH_WAIT = "Perf/learner_replay_batch_wait_ms"
    REPLAY_SAMPLE = "Perf/learner_replay_sample_ms"
    LEARNING = LEARNING_TIME
    INFERENCE_H2D = "Perf/learner_inference_h2d_ms"
    INFERENCE_FORWARD = "Perf/learner_inference_forward_ms"
    INFERENCE_D2H = "Perf/learner_inference_d2h_ms"


_ON_DEVICE: Final = frozenset(
    {
        Phase.REPLAY_SAMPLE,
        Phase.LEARNING,
        Phase.INFERENCE_H2D,
        Phase.INFERENCE_FORWARD,
        Phase.INFERENCE_D2H,
    }
)
"""Phases that give the device work."""


class PhaseTimeline:
    """Sums phases over the iterations since the last report; monotonic clock.

    Every phase, and every iteration, is a span of `tracer` as well.
    """

    def __init__(
        self,
        tracer: Tracer = NULL_TRACER,
        *,
        learning: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Nothing is measured yet.

        Args:
            tracer: gets the spans.
            learning: told when sampling and updates begin (True) and, without an exception,
                end (False).
        """
        self.tracer = tracer
        self.learning = learning
        self._measured = {phase: _Measured(phase, self) for phase in Phase}
        self._wall = 0
        self._iterations = 0
        self._started: int | None = None
        self._began = 0

    def begin(self) -> None:
        """An iteration starts; what an unfinished one had measured is dropped."""
        for measured in self._measured.values():
            measured.drop()
        self._started = self._began = time.perf_counter_ns()

    def measure(self, phase: Phase) -> AbstractContextManager[object]:
        """Time a phase of the current iteration; a phase is not part of itself."""
        return self._measured[phase]

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
        now = time.perf_counter_ns()
        self._wall += now - self._started
        self._iterations += 1
        for measured in self._measured.values():
            measured.keep()
        self._started = None
        self.tracer.complete("Iteration", self._began, now)

    def report(self) -> dict[str, float]:
        """Means since the last report by tag, in the unit that the tag states; resets them."""
        if self._iterations == 0:
            return {}
        milliseconds = 1e-6 / self._iterations
        values = {
            phase.value: measured.take()
            * (milliseconds * 1e-3 if phase is Phase.LEARNING else milliseconds)
            for phase, measured in self._measured.items()
        }
        values[ITERATION_TIME] = self._wall * milliseconds * 1e-3
        self._wall = self._iterations = 0
        return values


class _Measured:
    """Sums the time spent within it; made once, entered often."""

    def __init__(self, phase: Phase, timeline: PhaseTimeline) -> None:
        self._learns = phase in (Phase.REPLAY_SAMPLE, Phase.LEARNING)
        self._timeline = timeline
        self._label = METRICS[phase].label
        self._on_device = phase in _ON_DEVICE
        self._tracer = timeline.tracer
        self._sum = 0
        self._running = 0
        """Of the iteration under way."""
        self._started = 0
        self._cpu = 0
        self._begin: GpuMark | None = None

    def keep(self) -> None:
        """The iteration is complete."""
        self._sum += self._running
        self._running = 0

    def drop(self) -> None:
        """The iteration was never completed."""
        self._running = 0

    def take(self) -> int:
        """Nanoseconds of complete iterations since the last call."""
        taken, self._sum = self._sum, 0
        return taken

    def __enter__(self) -> Self:
        if self._learns:
            self._timeline.learning(True)  # noqa: FBT003 - begins or ends, as its name says
        if self._on_device:
            self._begin = self._tracer.gpu_mark()
        self._cpu = self._tracer.cpu_ns()
        self._started = time.perf_counter_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        now = time.perf_counter_ns()
        if self._learns and kind is None:
            self._timeline.learning(False)  # noqa: FBT003 - begins or ends, as its name says
        self._running += now - self._started
        self._tracer.complete(self._label, self._started, now, self._cpu)
        if self._on_device:
            self._tracer.gpu_complete(self._label, _GPU_TRACK, self._begin)
            self._begin = None
