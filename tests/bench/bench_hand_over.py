"""What lies between the two processes of a rank: an action's way there and back, rows' way in."""

from __future__ import annotations

import statistics
import time

import torch
from tests.bench.bench_sac_update import ACTIONS, HIDDEN, OBSERVATIONS
from tests.bench.hand_over_children import PAUSE_S
from tests.bench.result import Result, against

from drivetrain_api.algorithms import Precision, SacConfig
from drivetrain_trainer.algorithms.sac.agent import SacAgent
from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.inference_ring import InferenceRing
from drivetrain_trainer.runtime.ingress import ReplayIngress
from drivetrain_trainer.runtime.replay import CpuReplay
from drivetrain_trainer.runtime.replay_layout import RowLayout
from drivetrain_trainer.runtime.ring_words import Command
from drivetrain_trainer.training.phases import PhaseTimeline
from drivetrain_trainer.training.serving import TickServer

ENVS = 64
RUNS = 5
TICKS = 300
REPLAY_ROWS = 200_000

VECTOR, VECTORS = 2048, 2000
"""Rows of a tick, and ticks of a run."""
LEAST_ROWS = 10e6
"""Rows a second."""


def inference() -> list[Result]:
    """Median time from a request to its action, and of the bare policy, in turn.

    No update is in progress. The policy alone is timed as often as it answers, and as long
    after the last time: the processor's caches are as cold for the one as for the other.
    """
    torch.set_num_threads(1)
    agent = SacAgent(
        SacConfig(
            actor_hidden=(HIDDEN, HIDDEN), critic_hidden=(HIDDEN, HIDDEN), precision=Precision.FP32
        ),
        observation_dim=OBSERVATIONS,
        action_dim=ACTIONS,
        device=torch.device("cpu"),
        seed=0,
    )
    trips, bare = [], []
    for _ in range(RUNS):
        trips.append(1e6 * _round_trip(agent))
        bare.append(1e6 * _bare(agent))
    return [
        against(
            "inference_request_to_action",
            f"microseconds, median of {TICKS} ticks, {ENVS} envs, {HIDDEN}x{HIDDEN}",
            trips,
            bare,
            reference_name="the policy alone",
            target=2.0,
            better="lower",
        )
    ]


def ingress() -> list[Result]:
    """Rows a second from one process into the replay of another, at W = 50.

    By the wall clock, and by the processor time of the busier of the two, which is what holds
    where each has a core and the machine nothing else to do.
    """
    torch.set_num_threads(1)
    walls, busies = zip(*(_rows_a_second() for _ in range(RUNS)), strict=True)
    return [
        against(
            name,
            f"rows/s of 50 values into the replay, {VECTOR} a tick, by {clock}",
            rates,
            [LEAST_ROWS],
            reference_name="limit",
            target=1.0,
        )
        for name, clock, rates in (
            ("replay_ingress", "the wall clock", walls),
            ("replay_ingress_processor", "processor time", busies),
        )
    ]


class _NoRows:
    """A replay to which no rows come."""

    size = 0

    def meanwhile(self, _: int) -> None:
        return None

    def commit(self, _: int) -> int:
        return 0


def _round_trip(agent: SacAgent) -> float:
    """Median seconds of a request, as the process that makes it sees it."""
    ring = InferenceRing.create(ENVS, OBSERVATIONS, ACTIONS)
    with ChildProcess.spawn("tests.bench.hand_over_children:request", "collector") as child:
        child.channel.send((ring, TICKS))
        server = TickServer(
            ring.learner_port(child.peer),
            _NoRows(),  # type: ignore[arg-type]  # what it asks of a replay
            device=agent.device,
            timeout_s=60.0,
            timeline=PhaseTimeline(),
        )
        for tick in range(TICKS):
            server.serve(
                tick,
                lambda observation, tick=tick: agent.act(observation, tick=tick),
                epoch=0,
                command=Command.STEP,
            )
            agent.observe(server.observation)
        median = child.receive()
        assert isinstance(median, float)
        return median


@torch.no_grad()
def _bare(agent: SacAgent) -> float:
    observation = torch.randn(ENVS, OBSERVATIONS)
    spent = []
    for _ in range(TICKS):
        time.sleep(PAUSE_S)
        started = time.perf_counter()
        agent.policy(observation)
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


def _rows_a_second() -> tuple[float, float]:
    """By the wall clock, by processor time."""
    layout = RowLayout(20, 7)
    assert layout.width == 50
    ingress = ReplayIngress.create(2, VECTOR, layout.width)
    replay = CpuReplay(layout, REPLAY_ROWS, 0)
    replay.append(torch.zeros(REPLAY_ROWS, layout.width))  # its pages are taken
    with ChildProcess.spawn("tests.bench.hand_over_children:write", "collector") as child:
        child.channel.send((ingress, VECTOR, VECTORS))
        replay.attach(ingress.consumer(child.peer))
        replay.commit(0)
        began, worked = time.perf_counter(), time.thread_time()
        replay.commit(VECTORS - 1)
        wall, reading = time.perf_counter() - began, time.thread_time() - worked
        writing = child.receive()
        assert isinstance(writing, float)
    rows = VECTOR * (VECTORS - 1)
    return rows / wall, rows / max(reading, writing)
