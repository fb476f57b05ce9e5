"""The collector process: steps environments in lockstep with its learner.

Tick *t* of a group: take the actions, step, account for the episodes, pack and write the
rows, then ask for tick *t* + 1. The learner answers another group, or updates, meanwhile.

However many groups the environments form, they draw from one stream of random numbers, in
the order of ticks and environments: the generator's state goes from group to group.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

import torch

from drivetrain_trainer.envs.managers.log import declared_schema
from drivetrain_trainer.envs.soundness import NONFINITE
from drivetrain_trainer.envs.vector_env import diagnostics_of
from drivetrain_trainer.physics.port import BackendWorkerError
from drivetrain_trainer.runtime.collector import CollectorBoot, CollectorReady
from drivetrain_trainer.runtime.collector_report import (
    INVALID_ROWS,
    CollectorPhase,
    CollectorTotals,
    flight_gauges,
)
from drivetrain_trainer.runtime.episode_window import EpisodeWindow, RunningEpisodes
from drivetrain_trainer.runtime.faults import ChildFailure, FailureClass, PeerDiedError
from drivetrain_trainer.runtime.ingress_words import WriteResult
from drivetrain_trainer.runtime.phase_clock import ENV_TIMING, PhaseClock
from drivetrain_trainer.runtime.ring_words import Command
from drivetrain_trainer.runtime.row_guard import InvalidRowsError, RowGuard, RowNames
from drivetrain_trainer.tracing import NULL_TRACER, FlowPoint, TickFlow, open_tracer

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.envs.vector_env import StepOutcome, StepTimings, VectorEnv
    from drivetrain_trainer.runtime.descriptors import Channel
    from drivetrain_trainer.runtime.doorbell import Peer
    from drivetrain_trainer.runtime.replay_layout import RowLayout
    from drivetrain_trainer.runtime.ring_words import Response
    from drivetrain_trainer.tracing import Tracer

_OCCUPANCY: Final = "ingress occupancy"
_SEED_STRIDE: Final = 0x9E3779B1
_SEED_LIMIT: Final = 2**32


def run(channel: Channel, learner: Peer) -> int:
    """Collect until told to stop.

    Args:
        channel: brings the `CollectorBoot`, takes `CollectorReady` or a `ChildFailure`.
        learner: whose death ends this process too.

    Returns:
        Exit status: 0 when told to stop, 1 otherwise.
    """
    torch.set_num_threads(1)
    try:
        boot: CollectorBoot = channel.receive()
    except EOFError:  # stopped before it began
        return 0
    tracer = open_tracer(boot.trace)
    collector = Collector(boot, learner, tracer)
    try:
        with tracer.span("Environment Start"):
            ready = collector.start()
        channel.send(ready)
        collector.collect()
    except PeerDiedError:
        return 1
    except Exception as error:  # noqa: BLE001  # told to the learner, which decides
        accused = FailureClass.BACKEND_WORKER if isinstance(error, BackendWorkerError) else None
        final = isinstance(error, InvalidRowsError)
        channel.send(ChildFailure.of(error, collector.tick, accused, final=final))
        return 1
    finally:
        collector.close()
        tracer.close()
    return 0


class _Group:
    """Environments that share a slot of the ring."""

    def __init__(
        self,
        env: VectorEnv,
        index: int,
        first_env: int,
        layout: RowLayout,
        window: EpisodeWindow,
    ) -> None:
        self.env = env
        self.index = index
        self.first_env = first_env
        """Number of its first environment among those of the rank."""
        self.episodes = RunningEpisodes(env.num_envs, window)
        self.rows = torch.empty(env.num_envs, layout.width)
        self.names = RowNames(layout, env.terms)

    def place(self, device: torch.device) -> None:
        """Keep rows and accounts where the environments' tensors are."""
        self.rows = self.rows.to(device)
        self.episodes.place(device)


class Collector:
    """The loop and its accounts."""

    def __init__(self, boot: CollectorBoot, learner: Peer, tracer: Tracer = NULL_TRACER) -> None:
        self.tick: int | None = None
        """The tick in progress; None before the first."""
        self._boot = boot
        self._transport = boot.transport
        self._layout = boot.transport.layout
        self._port = boot.transport.ring.collector_port(learner)
        storage = boot.transport.ring.storage
        self._ingress = boot.transport.ingress.producer(
            learner, barrier=storage.barrier if storage.ipc_events else None
        )
        self._board = boot.transport.board
        self._groups: list[_Group] = []
        self._drawing: _Group | None = None
        """The group that has the state of the random numbers' generator."""
        self._window = EpisodeWindow()
        self._totals = CollectorTotals()
        self._guard = RowGuard(
            num_envs=boot.transport.ring.num_envs, share=boot.max_invalid_row_share
        )
        self._counted: set[str] = set()
        """Tags of families that count."""
        self._tracer = tracer
        self._flow = (
            TickFlow(tracer)
            if boot.trace is None
            else TickFlow(tracer, rank=boot.trace.rank, attempt=boot.trace.attempt)
        )
        self._clock = PhaseClock(tracer)
        self._nested: list[StepTimings] = []
        """Of the tick's groups."""
        self._started = 0.0

    def start(self) -> CollectorReady:
        """Make and reset the environments, and publish their first observations."""
        begun = time.monotonic()
        ring = self._transport.ring
        for index in range(ring.groups):
            env = self._make(index)
            first_env = ring.group_rows(index).start
            self._groups.append(_Group(env, index, first_env, self._layout, self._window))
        self._drawing = self._groups[0]
        if self._boot.rng_state is not None:
            self._drawing.env.set_rng_state(self._boot.rng_state)
        for group in self._groups:
            self._let_draw(group)
            observation = group.env.reset()
            group.place(observation.device)
            none_done = torch.zeros(group.env.num_envs)
            self._flow.mark(FlowPoint.REQUEST, self._boot.first_tick, group.index)
            self._port.request(self._boot.first_tick, observation, none_done, group=group.index)
        env = self._groups[0].env
        schema = declared_schema(env.log_families)
        for tag in env.log_tags:
            schema.family(tag)  # refused here, before training, and not at the first report
        self._counted = {tag for tag in env.log_tags if schema.family(tag).counted}
        self._board.agree(
            [f"{kind}:{tag}" for tag in env.log_tags for kind in ("log_sum", "log_weight")]
        )
        self._publish(self._boot.first_tick)
        self._started = time.monotonic()
        return CollectorReady(
            episode_length=env.episode_length,
            groups=ring.groups,
            terms=env.terms,
            metric_names=self._board.names,
            log_families=env.log_families,
            diagnostics=diagnostics_of(env),
            start_s=self._started - begun,
        )

    def collect(self) -> None:
        """Tick after tick until the learner says stop."""
        tick = self._boot.first_tick
        self._clock = PhaseClock(self._tracer)
        while self._collect_tick(tick):
            tick += 1
        self._ingress.flush()
        self._publish(tick)

    def close(self) -> None:
        """Let go of the environments."""
        for group in self._groups:
            group.env.close()

    def _make(self, index: int) -> VectorEnv:
        ring = self._transport.ring
        env = self._boot.env_factory(
            num_envs=ring.group_size(index),
            seed=(self._boot.seed + index * _SEED_STRIDE) % _SEED_LIMIT,
        )
        expected = (ring.group_size(index), ring.observation_dim, ring.action_dim)
        found = (env.num_envs, env.observation_dim, env.action_dim)
        if found != expected:
            env.close()
            raise ValueError(
                f"environments of (envs, observation, action) {found}; the rings are for {expected}"
            )
        return env

    def _let_draw(self, group: _Group) -> None:
        """Have a group go on with the random numbers where the one before it left off."""
        if self._drawing is not None and self._drawing is not group:
            group.env.set_rng_state(self._drawing.env.rng_state())
        self._drawing = group

    def _collect_tick(self, tick: int) -> bool:
        """One tick of every group; False once told to stop."""
        self.tick = tick
        clock = self._clock
        snapshot = False
        for group in self._groups:
            last = group is self._groups[-1]
            response = self._port.await_response(tick, group=group.index)
            clock.charge(CollectorPhase.LEARNER_ACTION_WAIT)
            if response.command is Command.STOP:
                return False
            snapshot = snapshot or response.command is Command.SNAPSHOT
            self._flow.mark(FlowPoint.STEP, tick, group.index)
            self._let_draw(group)
            outcome = group.env.step(response.action)
            clock.charge_step(group.env.timings)
            done = outcome.terminated | outcome.truncated
            left_out = self._pack(group, response, outcome, tick)
            self._account(group, outcome, done, left_out)
            clock.charge(CollectorPhase.TRANSITION_EXTRACT)
            rows = group.rows if left_out is None else group.rows[~left_out]
            self._flow.mark(FlowPoint.WRITE, tick, group.index)
            written = self._ingress.write(rows, tick, last=last)
            self._tracer.counter(_OCCUPANCY, self._ingress.occupancy)
            clock.charge(CollectorPhase.REPLAY_WRITE)
            if written is not WriteResult.COMPLETE:
                return False
            if last:
                self._hold_to_bound(tick)
                self._end_tick(tick, snapshot=snapshot)
                clock.charge(CollectorPhase.METRICS_PUBLISH)
            started_anew = done | outcome.invalid
            self._flow.mark(FlowPoint.REQUEST, tick + 1, group.index)
            self._port.request(tick + 1, outcome.observation, started_anew, group=group.index)
            clock.charge(CollectorPhase.INFERENCE_REQUEST)
        return True

    def _account(
        self, group: _Group, outcome: StepOutcome, done: Tensor, left_out: Tensor | None
    ) -> None:
        """Count a step; an episode of which a row was left out has no return."""
        reward = outcome.reward
        if left_out is not None:
            reward = reward.masked_fill(left_out, math.nan)
        group.episodes.step(reward, done, outcome.truncated, outcome.invalid)
        self._totals.env_steps += group.env.num_envs
        for tag, value in group.env.log.items():
            if "/" in tag:
                weight = 1 if tag in self._counted else group.env.num_envs
                self._totals.add_log(tag, value.item(), weight)
        self._nested.append(group.env.timings)

    def _pack(
        self, group: _Group, response: Response, outcome: StepOutcome, tick: int
    ) -> Tensor | None:
        """Pack the rows of a step; (n,) bool which ones to leave out, None for none of them."""
        self._layout.pack(
            group.rows,
            observation=self._port.requested_observation(group.index),
            action=response.action,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            next_observation=outcome.next_observation,
        )
        return self._guard.examine(
            group.rows, outcome, group.names, tick=tick, first_env=group.first_env
        )

    def _hold_to_bound(self, tick: int) -> None:
        """Give the run up where too many rows were left out, with the figures that say so."""
        try:
            self._guard.end_tick(tick)
        except InvalidRowsError:
            self._publish(tick + 1)
            raise

    def _end_tick(self, tick: int, *, snapshot: bool) -> None:
        totals = self._totals
        totals.ticks += 1
        for phase, milliseconds in self._clock.drain().items():
            totals.add(phase, milliseconds)
        for name, tag in ENV_TIMING.items():
            totals.add(tag, sum(getattr(timings, name) for timings in self._nested))
        self._nested.clear()
        if snapshot:
            # The last group's, which the first one goes on from in the next tick.
            self._board.write_snapshot(tick + 1, self._groups[-1].env.rng_state())
        if totals.ticks % self._boot.metrics_interval == 0:
            self._publish(tick + 1)

    def _publish(self, tick: int) -> None:
        totals = self._totals
        totals.episodes = self._window.episodes
        totals.timeouts = self._window.timeouts
        totals.seconds = time.monotonic() - self._started if self._started else 0.0
        totals.gauges.update(self._window.gauges())
        totals.gauges.update(flight_gauges(self._port.flight(reset=True)))
        totals.invalid_rows = self._guard.invalid_rows
        totals.first_unsound = self._guard.first
        totals.gauges[INVALID_ROWS] = float(self._guard.invalid_rows)
        totals.instability = {NONFINITE: self._guard.unreported_rows}
        for group in self._groups:
            for name, count in group.env.instability.items():
                totals.instability[name] = totals.instability.get(name, 0) + count
        self._board.publish(tick, totals.encode())
