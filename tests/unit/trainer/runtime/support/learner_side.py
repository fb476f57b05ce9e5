"""The learner's side of a run with scripted environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from scripted_env import ACTION_DIM, OBSERVATION_DIM

from drivetrain_trainer.runtime.learner_port import LearnerPort
from drivetrain_trainer.runtime.replay import CpuReplay
from drivetrain_trainer.runtime.replay_layout import RowLayout
from drivetrain_trainer.runtime.ring_words import Command
from drivetrain_trainer.runtime.settings import RuntimeSettings
from drivetrain_trainer.runtime.transport import Transport

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.runtime.ingress_consumer import IngressConsumer

SOON = 30.0
LAYOUT = RowLayout(OBSERVATION_DIM, ACTION_DIM)


def settings(
    *, num_envs: int = 4, capacity: int = 1, depth: int = 2, slot_rows: int | None = None
) -> RuntimeSettings:
    return RuntimeSettings(
        num_envs=num_envs,
        env_steps_per_sync=1,
        inference_slot_capacity=capacity,
        collector_metrics_interval=1,
        replay_ingress_depth=depth,
        replay_ingress_slot_rows=slot_rows or num_envs,
        replay_rows=1000,
        batch_size=8,
        updates_per_step=1,
        learning_starts=1,
        sim_threads=1,
    )


def make_transport(runtime: RuntimeSettings | None = None) -> Transport:
    return Transport.create(
        runtime or settings(), observation_dim=OBSERVATION_DIM, action_dim=ACTION_DIM
    )


def actions(tick: int, count: int) -> Tensor:
    """The actions of a tick, for `count` environments."""
    return torch.arange(count * ACTION_DIM).view(count, ACTION_DIM) / 100 + tick


class LearnerSide:
    """Serves ticks in lockstep and keeps every row."""

    def __init__(self, port: LearnerPort, ingress: IngressConsumer, first_tick: int = 0) -> None:
        self.tick = first_tick
        self.port = port
        self.replay = CpuReplay(LAYOUT, 1000, 0)
        self.replay.attach(ingress)

    def serve(self, ticks: int, command: Command = Command.STEP) -> None:
        """Answer that many ticks; `command` goes with the last."""
        last = self.tick + ticks - 1
        for tick in range(self.tick, last + 1):
            for group in range(self.port.groups):
                request = self.port.await_request(
                    tick, SOON, group=group, meanwhile=self.replay.meanwhile(tick - 1)
                )
                assert request.observation.isfinite().all()
                if group == self.port.groups - 1:
                    self.replay.commit(tick - 1)
                action = actions(tick, request.observation.shape[0])
                told = command if tick == last else Command.STEP
                self.port.respond(tick, tick, action, told, group=group)
        self.tick = last + 1

    def settle(self) -> None:
        """Wait until the ticks that were served are over: their rows in, their report out."""
        for group in range(self.port.groups):
            self.port.await_request(
                self.tick, SOON, group=group, meanwhile=self.replay.meanwhile(self.tick - 1)
            )
        self.replay.commit(self.tick - 1)

    @property
    def rows(self) -> Tensor:
        """Every row that is in."""
        rows: Tensor = self.replay.state_dict()["rows"]
        return rows
