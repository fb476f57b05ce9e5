"""What runs in the children of these tests that share rings with their parent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from drivetrain_trainer.runtime.faults import PeerDiedError
from drivetrain_trainer.runtime.ring_words import Command

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.descriptors import Channel
    from drivetrain_trainer.runtime.doorbell import Peer


def answer_requests(channel: Channel, learner: Peer) -> int:
    """A learner for the ring: answers each request with its observations' first columns."""
    ring, ticks = channel.receive()
    port = ring.learner_port(learner)
    channel.send("ready")
    try:
        for tick in range(ticks):
            for group in range(port.groups):
                request = port.await_request(tick, None, group=group)
                action = request.observation[:, : ring.action_dim]
                port.respond(tick, tick, action, group=group)
        port.await_request(ticks, None)
    except PeerDiedError:
        return 3
    return 0


def request_actions(channel: Channel, learner: Peer) -> int:
    """A collector for the ring: asks for ticks for ever, or until the learner dies."""
    ring = channel.receive()
    port = ring.collector_port(learner)
    channel.send("ready")
    tick = 0
    while True:
        for group in range(port.groups):
            rows = ring.group_size(group)
            observation = torch.full((rows, ring.observation_dim), float(tick))
            port.request(tick, observation, torch.zeros(rows), group=group)
        for group in range(port.groups):
            response = port.await_response(tick, group=group)
            if response.command is Command.STOP:
                return 0
            assert bool((response.action == float(tick)).all())
        tick += 1


def write_rows(channel: Channel, learner: Peer) -> int:
    """A producer for the ingress: writes the vectors it is told to, then says how each ended."""
    ingress, vectors, rows = channel.receive()
    producer = ingress.producer(learner)
    channel.send("ready")
    results = []
    for tick in range(vectors):
        block = torch.arange(tick * rows, (tick + 1) * rows, dtype=torch.float32)
        results.append(producer.write(block[:, None].expand(rows, ingress.width), tick))
    channel.send(results)
    return 0


def publish_reports(channel: Channel, _: Peer) -> int:
    """A writer for the board, until told to stop: every value of a report the same number."""
    board = channel.receive()
    names = [f"value/{index}" for index in range(200)]
    channel.send("ready")
    number = 0
    while not channel.pending():
        number += 1
        board.publish(number, dict.fromkeys(names[: 1 + number % 200], float(number)))
    channel.send(number)
    return 0


def pause_in_a_write(channel: Channel, _: Peer) -> int:
    """A writer for the board that stands still in its second report until it is told to go on."""
    board = channel.receive()
    board.publish(1, {"x": 1.0})
    record = board._report
    record._header[0] += 1
    channel.send("within")
    channel.receive()
    record._header[0] -= 1
    board.publish(2, {"x": 2.0})
    channel.send("written")
    channel.receive()
    return 0
