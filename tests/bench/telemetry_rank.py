"""A rank on a terminal whose telemetry is measured, or is left out; run by `bench_telemetry`.

Prints one JSON object on standard error: milliseconds an iteration, after a warm-up.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from drivetrain_trainer.evidence.run_summary import SummaryWriter
from drivetrain_trainer.telemetry import logger
from drivetrain_trainer.train import main as train
from drivetrain_trainer.training.progress import ProgressReporter
from drivetrain_trainer.training.reports import Reports

WARM_UP = 50
"""Iterations that are not counted."""
CLOCKED = {SummaryWriter: "iteration_done", ProgressReporter: "write"}
"""What writes every few seconds, whatever an iteration takes."""


@dataclass(frozen=True)
class Clocks:
    """Nanoseconds so far."""

    wall: int
    processor: int
    """Of the training thread."""
    inline: int
    """Of telemetry on the training thread."""
    clocked: int
    """The part of `inline` that goes by the clock."""
    backends: int
    """Of the backends' threads."""
    panel: int
    """Of the panel's thread."""


class Meter:
    """Measures a rank between two of its iterations."""

    def __init__(self) -> None:
        self._iterations = 0
        self._spent = {"inline": 0, "clocked": 0}
        self._began = self._ended = self._clocks()
        self._counted = 1

    def timed(self, original: Callable[..., Any], kind: str) -> Callable[..., Any]:
        """The same, its processor time added to a kind."""

        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.thread_time_ns()
            try:
                return original(*args, **kwargs)
            finally:
                self._spent[kind] += time.thread_time_ns() - started

        return call

    def counting(self, original: Callable[..., None] | None) -> Callable[..., None]:
        """What the training thread calls after each iteration."""

        def call(*args: Any) -> None:
            if original is not None:
                original(*args)
            self._iterations += 1
            if self._iterations == WARM_UP:
                self._began = self._clocks()
            elif self._iterations > WARM_UP and self._iterations % 10 == 0:
                self._ended = self._clocks()
                self._counted = self._iterations - WARM_UP

        return call

    def figures(self) -> dict[str, float]:
        """Milliseconds an iteration."""
        began, ended = asdict(self._began), asdict(self._ended)
        return {name: (ended[name] - began[name]) / 1e6 / self._counted for name in began}

    def _clocks(self) -> Clocks:
        return Clocks(
            time.perf_counter_ns(),
            time.thread_time_ns(),
            self._spent["inline"],
            self._spent["clocked"],
            _of_threads("backend-"),
            _of_threads("terminal-"),
        )


def _of_threads(prefix: str) -> int:
    """Nanoseconds of processor time of the threads whose names begin so."""
    return sum(
        time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.name.startswith(prefix) and thread.ident is not None
    )


def main() -> int:
    """Train by ``run.json``; the argument is `on` or `off`."""
    meter = Meter()
    if sys.argv[1] == "on":
        for owner, name in CLOCKED.items():
            setattr(owner, name, meter.timed(getattr(owner, name), "clocked"))
        inline = meter.timed(Reports.iteration_done, "inline")
        Reports.iteration_done = meter.counting(inline)  # type: ignore[method-assign]
    else:
        Reports.iteration_done = meter.counting(None)  # type: ignore[method-assign]
        Reports.finish = lambda *_: None  # type: ignore[method-assign]
        logger.make_terminal = lambda _: None  # type: ignore[assignment, return-value]
    code = train(["--spec", "run.json"])
    if code == 0:
        os.write(2, json.dumps(meter.figures()).encode() + b"\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
