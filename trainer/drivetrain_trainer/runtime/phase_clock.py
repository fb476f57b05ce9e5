"""Where a collector's time goes: each moment of a tick is one phase's, and shown as a span."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from drivetrain_api.metrics import METRICS
from drivetrain_trainer.runtime.collector_report import CollectorPhase

if TYPE_CHECKING:
    from drivetrain_trainer.envs.vector_env import StepTimings
    from drivetrain_trainer.tracing import Tracer

ENV_TIMING: Final = {
    "action_validate": "Perf/collector_env_step_action_validate_ms",
    "apply_action": "Perf/collector_env_step_apply_action_ms",
    "action_backend": "Perf/collector_env_step_action_backend_ms",
    "backend": "Perf/collector_env_step_backend_ms",
    "update_state": "Perf/collector_env_step_update_state_ms",
    "reset_done": "Perf/collector_env_step_reset_done_ms",
}
"""Tags of the parts of `StepTimings`."""
_STEP_PARTS: Final = ("action_validate", "apply_action", "backend", "update_state", "reset_done")
"""Of `StepTimings`, one after the other."""
_SPAN_NAME: Final = {
    **{phase.value: METRICS[phase].label for phase in CollectorPhase},
    **{part: METRICS[ENV_TIMING[part]].label for part in _STEP_PARTS},
}
"""Spans are named as the terminal names their phases."""


class PhaseClock:
    """Charges the time since the last mark to a phase."""

    def __init__(self, tracer: Tracer) -> None:
        """Start now; `tracer` shows each phase as a span."""
        self.spent = dict.fromkeys(CollectorPhase, 0)
        self._tracer = tracer
        self._cpu = tracer.cpu_ns()
        self._mark = time.perf_counter_ns()

    def charge(self, phase: CollectorPhase) -> None:
        """Charge the time since the last mark, which moves here."""
        now = time.perf_counter_ns()
        self.spent[phase] += now - self._mark
        self._tracer.complete(_SPAN_NAME[phase], self._mark, now, self._cpu)
        self._cpu = self._tracer.cpu_ns()
        self._mark = now

    def charge_step(self, timings: StepTimings) -> None:
        """Charge an env step, and show its parts within it."""
        started = self._mark
        self.charge(CollectorPhase.ENV_STEP)
        if not self._tracer.enabled:
            return
        start = min(max(timings.began_ns, started), self._mark)
        for part in _STEP_PARTS:
            end = min(start + round(getattr(timings, part) * 1e6), self._mark)
            self._tracer.complete(_SPAN_NAME[part], start, end)
            start = end

    def drain(self) -> dict[CollectorPhase, float]:
        """Milliseconds by phase since the last drain."""
        milliseconds = {phase: spent * 1e-6 for phase, spent in self.spent.items()}
        self.spent = dict.fromkeys(CollectorPhase, 0)
        return milliseconds
