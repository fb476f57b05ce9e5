"""The learner loop of the off-policy algorithms: lockstep ticks with one collector.

An iteration is ``env_steps_per_sync`` ticks and, once replay is ready, one call of the
algorithm's fixed number of updates. Between two iterations lies a boundary: the collector
waits for its action, all its rows are in replay, no update is in progress. Evaluation,
checkpoints and stops happen there and nowhere else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import torch

from drivetrain_trainer.runtime.inference_ring import Command
from drivetrain_trainer.tracing import NO_FLOW, FlowPoint
from drivetrain_trainer.training.phases import Phase
from drivetrain_trainer.training.stop import StopReason

if TYPE_CHECKING:
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

    def snapshot_due(self, env_steps: int) -> bool:
        """Whether the boundary at this step will want the environments' generator state."""

    def visit(self, cursor: Cursor) -> StopReason:
        """Evaluate, checkpoint, decide; the same answer on every rank."""

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

    @classmethod
    def of(cls, settings: RuntimeSettings, world_size: int) -> Self:
        """The loop's part of the runtime settings."""
        return cls(
            num_envs=settings.num_envs,
            batch_size=settings.batch_size,
            updates_per_step=settings.updates_per_step,
            env_steps_per_sync=settings.env_steps_per_sync,
            learning_starts=settings.learning_starts,
            world_size=world_size,
            tick_timeout_seconds=settings.tick_timeout_s,
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
        self._port = collector.port
        self._replay = replay
        self._boundary = boundary
        self._stop = stop
        self._cursor = cursor
        self._tick = 0
        self._ready_tick = 0 if replay.size else settings.ticks_before_learning
        self._timeline = timeline
        self._flow = flow

    def run(self) -> StopReason:
        """Train until the boundary, or a signal at any rank, ends it; at a boundary."""
        signalled = False
        while True:
            self._timeline.begin()
            observation = self._await_requests()
            if signalled:
                # One more tick, without an update, for the generator state of the checkpoint.
                self._serve(observation, snapshot=True)
                observation = self._await_requests()
            with self._timeline.outside():
                reason = self._boundary.visit(self._cursor)
            if signalled:
                reason = max(reason, StopReason.SIGNAL)
            if reason is not StopReason.NONE:
                return reason
            for served in range(self._settings.env_steps_per_sync):
                if served:
                    observation = self._await_requests()
                self._serve(observation, snapshot=self._snapshot_wanted(served))
            signalled = self._learn()
            self._cursor.iteration += 1
            self._timeline.end()
            self._boundary.report(self._cursor, self._timeline)

    def _await_requests(self) -> torch.Tensor:
        """Observations (N, o) of this tick; all rows of earlier ticks are in replay after."""
        with self._timeline.measure(Phase.COLLECTOR_WAIT):
            requests = [
                self._port.await_request(
                    self._tick,
                    self._settings.tick_timeout_seconds,
                    group=group,
                    meanwhile=self._replay.meanwhile(self._tick - 1),
                )
                for group in range(self._port.groups)
            ]
        with self._timeline.measure(Phase.REPLAY_BATCH_WAIT):
            self._replay.commit(self._tick - 1)
        self._timeline.tracer.counter("replay rows", self._replay.size)
        if len(requests) == 1:
            return requests[0].observation
        return torch.cat([request.observation for request in requests])

    def _serve(self, observation: torch.Tensor, *, snapshot: bool) -> None:
        """Answer a tick's requests with actions of one complete policy version."""
        with self._timeline.measure(Phase.INFERENCE):
            self._flow.mark_all(FlowPoint.INFERENCE, self._tick)
            self._infer(observation)
        command = Command.SNAPSHOT if snapshot else Command.STEP
        with self._timeline.measure(Phase.COLLECTOR_RELEASE):
            self._flow.mark_all(FlowPoint.RESPONSE, self._tick)
            for group in range(self._port.groups):
                self._port.respond(self._tick, self._cursor.iteration, None, command, group=group)
        self._tick += 1
        self._cursor.tick += 1
        self._cursor.env_steps += self._settings.env_steps_per_tick

    def _infer(self, observation: torch.Tensor) -> None:
        """Bring a tick's observations to the agent and its actions back into the slots."""
        with self._timeline.measure(Phase.INFERENCE_H2D):
            observation = observation.to(self._agent.device)
        self._agent.observe(observation)
        with self._timeline.measure(Phase.INFERENCE_FORWARD):
            action = self._act(observation)
            if action.is_cuda:  # the copy would wait for it all the same, and be blamed
                torch.cuda.current_stream(action.device).synchronize()
        with self._timeline.measure(Phase.INFERENCE_D2H):
            for group, part in enumerate(action.tensor_split(self._port.groups)):
                self._port.place(part, group=group)

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        if self._cursor.tick < self._settings.learning_starts:
            return self._agent.random_action(self._settings.num_envs, tick=self._cursor.tick)
        return self._agent.act(observation, tick=self._cursor.tick)

    def _snapshot_wanted(self, served: int) -> bool:
        """The last tick before a boundary carries the generator state where that may be needed."""
        last = served == self._settings.env_steps_per_sync - 1
        after = self._cursor.env_steps + self._settings.env_steps_per_tick
        return last and self._boundary.snapshot_due(after)

    def _learn(self) -> bool:
        """One call of updates, or only the ranks' agreement; True where a rank was signalled."""
        if self._tick <= self._ready_tick:
            return self._agent.sync(stop_requested=self._stop.requested)
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
                batch, iteration=self._cursor.iteration, stop_requested=self._stop.requested
            )
