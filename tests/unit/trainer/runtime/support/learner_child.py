"""A learner with a collector of its own, to be killed as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from learner_side import make_transport
from scripted_env import ACTION_DIM, ScriptedFactory

from drivetrain_trainer.runtime.collector import CollectorBoot, start_collector

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.descriptors import Channel
    from drivetrain_trainer.runtime.doorbell import Peer


def learn_for_ever(channel: Channel, _: Peer) -> int:
    """Serve ticks without end; says the collector's number once they run."""
    collector = start_collector(CollectorBoot(ScriptedFactory(), 0, make_transport()))
    collector.await_ready(60.0)
    tick = 0
    while True:
        collector.port.await_request(tick, 60.0)
        collector.ingress.drain(lambda _: None, tick - 1)
        collector.port.respond(tick, 0, torch.zeros(4, ACTION_DIM))
        if tick == 10:
            channel.send(collector.pid)
        tick += 1
