"""One line every few seconds, for logs and pipes."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, TextIO

import structlog

from drivetrain_trainer.telemetry.terminal import figures
from drivetrain_trainer.telemetry.terminal.clock import Clock
from drivetrain_trainer.telemetry.terminal.model import PanelModel, build
from drivetrain_trainer.telemetry.terminal.output import Output

if TYPE_CHECKING:
    from drivetrain_trainer.telemetry.facts import EvaluationFigures, SystemFacts
    from drivetrain_trainer.telemetry.record import Record
    from drivetrain_trainer.telemetry.terminal.state import TerminalState

PLAIN_INTERVAL_S = 5.0
"""Seconds between two lines."""

LAST_LINES_S = 2.0
"""Seconds that the end of a run waits for a reader that takes nothing."""

log = structlog.get_logger(__name__)


class PlainTerminal:
    """Writes progress as lines of ASCII.

    A reader that takes nothing for long loses lines, and one that is gone ends them; training
    waits for neither. Both are warned of once.
    """

    def __init__(
        self, state: TerminalState, stream: TextIO, *, interval_s: float = PLAIN_INTERVAL_S
    ) -> None:
        self._state = state
        self._stream = stream
        self._output: Output | None = None
        self._broken = False
        self._losing = False
        self._reports = 0
        self._printed = 0
        self._clock = Clock(self._tick, period_s=interval_s, name="terminal-lines")

    def start(self) -> None:
        """Say what is trained, and begin."""
        self._print(opening_line(self._state.snapshot().facts))
        self._clock.start()

    def update(self, record: Record) -> None:
        """Take a reduced report."""
        self._state.update(record)
        self._reports += 1

    def evaluated(self, evaluation: EvaluationFigures) -> None:
        """Take an evaluation; it has a line of its own."""
        self._state.evaluated(evaluation)
        self._print(evaluation_line(evaluation))

    def retarget(self, env_steps: int) -> None:
        """Count towards another end of the run."""
        self._state.retarget(env_steps)

    def close(self) -> None:
        """Print where the run stands at the end."""
        self._clock.stop()
        self._tick()
        output, self._output, self._broken = self._output, None, True
        if output is not None:
            with contextlib.suppress(OSError, ValueError):
                output.drain(LAST_LINES_S)
            output.close()

    def _tick(self) -> bool:
        reports = self._reports
        if reports > self._printed:
            self._printed = reports
            self._print(progress_line(build(self._state.snapshot())))
        self._print()
        return not self._broken

    def _print(self, line: str | None = None) -> None:
        """Write a line, or without one what still waits to be taken."""
        if self._broken:
            return
        try:
            if self._output is None:
                self._stream.flush()
                self._output = Output(self._stream)
            taken = True
            if line is None:
                self._output.drain()
            else:
                taken = self._output.write(f"{line}\n")
        except (OSError, ValueError) as error:  # a closed pipe, a full disk, a closed file
            self._give_up(error)
            return
        if not (taken or self._losing):
            self._losing = True
            log.warning("nobody reads the terminal output; lines are lost, training goes on")

    def _give_up(self, error: Exception) -> None:
        output, self._output, self._broken = self._output, None, True
        if output is not None:
            output.abandon()
        log.warning("terminal output ended; training goes on", error=str(error))


def opening_line(facts: SystemFacts) -> str:
    """``training sac on half_cheetah (mujoco) in 2026-...``."""
    envs = figures.count(facts.num_envs * facts.ranks)
    return (
        f"training {facts.algo} on {facts.task} ({facts.sim}), run {facts.run_name}: "
        f"{facts.ranks} rank{'s' if facts.ranks > 1 else ''}, {envs} envs, "
        f"batch {figures.count(facts.batch_per_rank)} a rank, GPUs {facts.gpus}"
    )


def progress_line(model: PanelModel) -> str:
    """``step 531,200/1,000,000  53.1 %  8,142 steps/s  reward 5,123.2  eta 0:01:06``."""
    progress = model.progress
    position = f"{progress.unit.rstrip('s')} {figures.count(progress.position)}"
    parts = [position]
    if progress.target is not None and progress.share is not None:
        parts = [f"{position}/{figures.count(progress.target)}", figures.percent(progress.share)]
    parts.append(f"{figures.rate(model.steps_per_second)} steps/s")
    if model.rewards:
        parts.append(f"reward {figures.value(model.rewards[0].value)}")
    if progress.target is not None:
        parts.append(f"eta {figures.duration(progress.eta_s)}")
    for row in model.learner:
        if row.violation and row.share is not None:
            parts.append(f"phases take {figures.percent(row.share)} of the iteration")
    return "  ".join(parts)


def evaluation_line(evaluation: EvaluationFigures) -> str:
    """``evaluation at step 500,000: 5,301.1 +/- 101.20 over 10 episodes (best so far)``."""
    episodes = "episode" if evaluation.episodes == 1 else "episodes"
    # a single episode has no deviation
    spread = f" +/- {figures.value(evaluation.sd)}" if math.isfinite(evaluation.sd) else ""
    best = (
        "best so far"
        if evaluation.best_env_steps == evaluation.env_steps
        else f"best {figures.value(evaluation.best_mean)} at step "
        f"{figures.count(evaluation.best_env_steps)}"
    )
    return (
        f"evaluation at step {figures.count(evaluation.env_steps)}: "
        f"{figures.value(evaluation.mean)}{spread} "
        f"over {figures.count(evaluation.episodes)} {episodes} ({best})"
    )
