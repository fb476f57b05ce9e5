"""What a terminal remembers between redraws; safe to use from two threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from drivetrain_api.metrics import FAMILIES, METRICS, Owner
from drivetrain_trainer.telemetry import timeline
from drivetrain_trainer.telemetry.terminal.model import PEAKED, Snapshot
from drivetrain_trainer.telemetry.terminal.window import Pace, SlidingMean

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_trainer.telemetry.facts import EvaluationFigures, SystemFacts
    from drivetrain_trainer.telemetry.record import Record

_ROWS = "rows per second"
"""Name under which the window averages a figure that has no tag: it is never persisted."""


_LEARNER_TAGS = frozenset(tag for tag, metric in METRICS.items() if metric.owner is Owner.LEARNER)
_TRACKER_PREFIXES = tuple(family.prefix for family in FAMILIES if family.owner is Owner.TRACKER)


def _is_shown(tag: str) -> bool:
    """The stats tracker's families are for backends: hundreds of tags, none of them shown."""
    return tag in METRICS or not tag.startswith(_TRACKER_PREFIXES)


MOST_WAITING = 128
"""Reports that may wait to be looked at: a second's at 128 a second."""


class TerminalState:
    """Takes reports on the training thread and gives snapshots to the redraw thread."""

    def __init__(self, facts: SystemFacts, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._facts = facts
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[tuple[float, Record]] = deque()
        self._window = SlidingMean()
        self._pace = Pace()
        self._peaks: dict[str, float] = {}
        self._phases = frozenset(timeline.learner_phases(facts.algo))
        self._known_phases: set[str] = set()
        self._measured = False
        self._latest: Record | None = None
        self._buffer_rows: int | None = None
        self._evaluation: EvaluationFigures | None = None
        self._began = clock()

    def update(self, record: Record) -> None:
        """Take a reduced report; what it means is worked out when somebody looks."""
        self._waiting.append((self._clock(), record))
        if len(self._waiting) >= MOST_WAITING:  # nobody has looked for long
            with self._lock:
                self._absorb_waiting()

    def _absorb_waiting(self) -> None:
        while self._waiting:
            self._absorb(*self._waiting.popleft())

    def _absorb(self, now: float, record: Record) -> None:
        sample = not _LEARNER_TAGS.isdisjoint(record.values)
        values = {tag: value for tag, value in record.values.items() if _is_shown(tag)}
        if record.learner_rows_per_second is not None:
            values[_ROWS] = record.learner_rows_per_second
        self._latest = record
        if record.buffer_rows is not None:
            self._buffer_rows = record.buffer_rows
        self._complete_timeline(values)
        self._window.append(now, values, sample=sample)
        self._pace.append(now, self._position(record))
        for tag, value in values.items():
            if tag.startswith(PEAKED) and value > self._peaks.get(tag, float("-inf")):
                self._peaks[tag] = value

    def evaluated(self, evaluation: EvaluationFigures) -> None:
        """Take the latest evaluation."""
        with self._lock:
            self._evaluation = evaluation

    def retarget(self, env_steps: int) -> None:
        """Take another end of the run."""
        with self._lock:
            self._facts = replace(self._facts, target_env_steps=env_steps)

    def snapshot(self) -> Snapshot:
        """Everything to be shown now."""
        now = self._clock()
        with self._lock:
            self._absorb_waiting()
            means = self._window.means(now)
            values = dict(means.values)
            rows_per_second = values.pop(_ROWS, None)
            record = self._latest
            return Snapshot(
                facts=self._facts,
                means=values,
                samples=means.samples,
                peaks=dict(self._peaks),
                env_steps=record.env_steps if record else self._facts.start_env_steps,
                iteration=record.iteration if record else 0,
                elapsed_s=now - self._began,
                pace=self._pace.rate(now, self._position(record)) if record else None,
                rows_per_second=rows_per_second,
                buffer_rows=self._buffer_rows,
                evaluation=self._evaluation,
            )

    def _complete_timeline(self, values: dict[str, float]) -> None:
        """Make the means of the learner's phases add up to the mean of Iter Wall.

        A phase that an iteration did not have took no time of it, and phases of an iteration
        that was not measured as a whole are left out.
        """
        held = self._phases & values.keys()
        if timeline.ITERATION_TIME not in values:
            for tag in held if self._measured else ():
                del values[tag]
            return
        if not self._measured:
            self._measured = True
            self._window.forget(self._phases)
        self._known_phases |= held
        for tag in self._known_phases - held:
            values[tag] = 0.0

    def _position(self, record: Record) -> int:
        counts_iterations = (
            self._facts.target_env_steps is None and self._facts.target_iterations is not None
        )
        return record.iteration if counts_iterations else record.env_steps
