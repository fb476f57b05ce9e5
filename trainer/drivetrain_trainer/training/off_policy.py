"""The learner loop of the off-policy algorithms: lockstep ticks with one collector.

An iteration is ``env_steps_per_sync`` ticks and, once replay is ready, one call of the
algorithm's fixed number of updates. Between two iterations lies a boundary. Evaluation,
checkpoints and stops happen there and nowhere else; where one is due, the collector waits for
all its actions first, all its rows are in replay, and no update is in progress.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from drivetrain_trainer.algorithms.nonfinite import NonFiniteTrainingError
from drivetrain_trainer.runtime.ring_words import Command
from drivetrain_trainer.tracing import NO_FLOW
from drivetrain_trainer.training.phases import Phase
from drivetrain_trainer.training.serving import TickServer
from drivetrain_trainer.training.stop import StopReason

if TYPE_CHECKING:
    import torch

    from drivetrain_trainer.algorithms.sac.agent import SacAgent
    from drivetrain_trainer.runtime.collector import CollectorProcess
    from drivetrain_trainer.runtime.replay import ReplayRing
    from drivetrain_trainer.runtime.settings import RuntimeSettings
    from drivetrain_trainer.tracing import TickFlow
    from drivetrain_trainer.training.phases import PhaseTimeline
    from drivetrain_trainer.training.schedule import Cursor
    from drivetrain_trainer.training.stop import StopSignal


class Boundary(Protocol):
    """What happens between two iterations."""

    def due(self, env_steps: int) -> bool:
        """Whether the boundary at this step has something to do, the same on every rank.

        Then its tick brings the environments' generator state.
        """

    def visit(self, cursor: Cursor) -> StopReason:
        """Evaluate, checkpoint, decide, where due; the same answer on every rank."""

    def report(self, cursor: Cursor, timeline: PhaseTimeline) -> None:
        """Submit metrics and progress where they are due, at an iteration's end."""


@dataclass(frozen=True)
class LoopSettings:
    """Fixed figures of the loop."""

    num_envs: int
    batch_size: int
    updates_per_step: int
    env_steps_per_sync: int
    learning_starts: int
    world_size: int
    tick_timeout_seconds: float
    stop_timeout_seconds: float = math.inf
    """From the request to stop to the collector's next request."""

    @classmethod
    def of(
        cls, settings: RuntimeSettings, world_size: int, *, grace_seconds: float = math.inf
    ) -> Self:
        """The loop's part of the runtime settings; a stop must be over in `grace_seconds`."""
        return cls(
            num_envs=settings.num_envs,
            batch_size=settings.batch_size,
            updates_per_step=settings.updates_per_step,
            env_steps_per_sync=settings.env_steps_per_sync,
            learning_starts=settings.learning_starts,
            world_size=world_size,
            tick_timeout_seconds=settings.tick_timeout_s,
            stop_timeout_seconds=grace_seconds / 3,
        )

    @property
    def env_steps_per_tick(self) -> int:
        """Environment steps of one tick over all ranks."""
        return self.num_envs * self.world_size

    @property
    def ticks_before_learning(self) -> int:
        """Ticks whose rows must be in replay before the first update.

        Counted in ticks rather than rows, so that all ranks start together even where one
        of them left out the row of a world that diverged.
        """
        return max(math.ceil(self.batch_size / self.num_envs), self.learning_starts)


class OffPolicyLearner:
    """Serves actions and learns; owns the order of ticks and nothing else."""

    def __init__(
        self,
        settings: LoopSettings,
        *,
        agent: SacAgent,
        collector: CollectorProcess,
        replay: ReplayRing,
        boundary: Boundary,
        stop: StopSignal,
        cursor: Cursor,
        timeline: PhaseTimeline,
        flow: TickFlow = NO_FLOW,
    ) -> None:
        self._settings = settings
        self._agent = agent
        self._collector = collector
        self._replay = replay
        self._boundary = boundary
        self._stop = stop
        self._cursor = cursor
        self._tick = 0
        self._ready_tick = 0 if replay.size else settings.ticks_before_learning
        self._timeline = timeline
        self._server = TickServer(
            collector.port,
            replay,
            device=agent.device,
            timeout_s=settings.tick_timeout_seconds,
            timeline=timeline,
            flow=flow,
            stop=stop,
            stop_timeout_s=settings.stop_timeout_seconds,
        )

    @property
    def warming_up(self) -> bool:
        """Whether the rows that the first update needs are still being collected."""
        return self._tick <= self._ready_tick

    def run(self) -> StopReason:
        """Train until the boundary, or a signal at any rank, ends it; at a boundary.

        Raises:
            NonFiniteTrainingError: no row of the warm-up was sound, or updates stayed non-finite.
        """
        signalled = False
        while True:
            self._timeline.begin()
            if signalled:
                # One more tick, without an update, for the generator state of the checkpoint.
                self._serve(snapshot=True)
            reason = self._visit(signalled=signalled)
            if reason is not StopReason.NONE:
                return reason
            for served in range(self._settings.env_steps_per_sync):
                self._serve(snapshot=self._snapshot_wanted(served))
            signalled = self._learn()
            self._cursor.iteration += 1
            self._timeline.end()
            self._boundary.report(self._cursor, self._timeline)

    def _visit(self, *, signalled: bool) -> StopReason:
        """What the boundary wants, if anything; only then must the collector stand still."""
        if not signalled and not self._boundary.due(self._cursor.env_steps):
            return StopReason.NONE
        self._server.gather(self._tick)
        with self._timeline.outside():
            reason = self._boundary.visit(self._cursor)
        return max(reason, StopReason.SIGNAL) if signalled else reason

    def _serve(self, *, snapshot: bool) -> None:
        """Answer a tick's requests with actions of one complete policy version."""
        self._server.serve(
            self._tick,
            self._act,
            epoch=self._cursor.iteration,
            command=Command.SNAPSHOT if snapshot else Command.STEP,
        )
        with self._timeline.measure(Phase.INFERENCE):
            self._agent.observe(self._server.observation)
        self._tick += 1
        self._cursor.tick += 1
        self._cursor.env_steps += self._settings.env_steps_per_tick

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        if self._cursor.tick < self._settings.learning_starts:
            return self._agent.random_action(self._settings.num_envs, tick=self._cursor.tick)
        return self._agent.act(observation, tick=self._cursor.tick)

    def _snapshot_wanted(self, served: int) -> bool:
        """The last tick before a boundary carries the generator state where that may be needed."""
        last = served == self._settings.env_steps_per_sync - 1
        after = self._cursor.env_steps + self._settings.env_steps_per_tick
        return last and self._boundary.due(after)

    def _learn(self) -> bool:
        """One call of updates, or only the ranks' agreement; True where a rank was signalled."""
        if self._tick <= self._ready_tick:
            return self._agent.sync(stop_requested=self._stop.wanted)
        if self._replay.size == 0:
            raise NonFiniteTrainingError(
                f"not one of {self._tick * self._settings.num_envs} rows could be trained on; the"
                f" first: {self._collector.totals().first_unsound}"
            )
        settings = self._settings
        with self._timeline.measure(Phase.REPLAY_SAMPLE):
            batch = self._replay.sample(
                self._cursor.iteration, settings.updates_per_step, settings.batch_size
            )
        if settings.env_steps_per_sync == 1:
            # With more ticks an iteration the rows of the last one are not ordered yet.
            self._replay.prefetch(
                self._cursor.iteration + 1,
                settings.updates_per_step,
                settings.batch_size,
                through_tick=self._tick - 1,
            )
        with self._timeline.measure(Phase.LEARNING):
            return self._agent.update(
                batch, iteration=self._cursor.iteration, stop_requested=self._stop.wanted
            )
