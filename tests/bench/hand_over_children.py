"""The other process of the hand-over's benchmarks: a collector without environments."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.descriptors import Channel
    from drivetrain_trainer.runtime.doorbell import Peer

PAUSE_S = 0.003
"""Between two requests: what a step of the environments would take."""


def request(channel: Channel, learner: Peer) -> int:
    """Ask for actions, tick after tick; say the median time to one, in seconds."""
    torch.set_num_threads(1)
    ring, ticks = channel.receive()
    port = ring.collector_port(learner)
    observation = torch.randn(ring.num_envs, ring.observation_dim)
    done = torch.zeros(ring.num_envs)
    spent = []
    for tick in range(ticks):
        time.sleep(PAUSE_S)
        started = time.perf_counter()
        port.request(tick, observation, done)
        port.await_response(tick, None)
        spent.append(time.perf_counter() - started)
    channel.send(statistics.median(spent))
    return 0


def write(channel: Channel, learner: Peer) -> int:
    """Write vectors of rows as fast as they are taken; say the processor time, in seconds."""
    torch.set_num_threads(1)
    ingress, size, vectors = channel.receive()
    producer = ingress.producer(learner)
    rows = torch.randn(size, ingress.width)
    producer.write(rows, 0)  # the slot's pages are taken
    began = time.thread_time()
    for tick in range(1, vectors):
        producer.write(rows, tick)
    channel.send(time.thread_time() - began)
    return 0
