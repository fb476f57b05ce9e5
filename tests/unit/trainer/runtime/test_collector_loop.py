"""The collector's loop, in a thread beside its learner: what it sends and what it reports."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_side import LAYOUT, SOON, LearnerSide, actions, make_transport, settings
from scripted_env import ACTION_DIM, EPISODE_LENGTH, ScriptedEnv, ScriptedFactory
from torch import Tensor

from drivetrain_trainer.envs.vector_env import StepOutcome, StepTimings
from drivetrain_trainer.runtime.collector import CollectorBoot, EnvFactory
from drivetrain_trainer.runtime.collector_loop import Collector
from drivetrain_trainer.runtime.collector_report import CollectorReport, ReportReader
from drivetrain_trainer.runtime.descriptors import Channel
from drivetrain_trainer.runtime.doorbell import Peer
from drivetrain_trainer.runtime.phase_clock import PhaseClock
from drivetrain_trainer.runtime.ring_words import Command
from drivetrain_trainer.runtime.settings import RuntimeSettings
from drivetrain_trainer.runtime.transport import Transport
from drivetrain_trainer.tracing import FileTracer, Role, TraceSettings
from drivetrain_trainer.tracing.validate import validate

SEED = 11
FAULTY = ScriptedFactory(
    invalid_at={3: (1, 2), 6: (0, 1, 2, 3, 4)}, terminate_at={2: (0,), 8: (4,)}
)


def sent(transport: Transport) -> Transport:
    """The other process's view of the same memory."""
    first, second = Channel.pair()
    with first, second:
        first.send(transport)
        received: Transport = second.receive()
    return received


class Run:
    """A collector thread and the learner that serves it."""

    def __init__(
        self,
        script: EnvFactory = ScriptedFactory(),  # noqa: B008  # frozen
        runtime: RuntimeSettings | None = None,
        **boot: Any,
    ) -> None:
        peer = Peer(os.getpid(), "self")
        self.transport = make_transport(runtime)
        theirs = sent(self.transport)
        self.collector = Collector(CollectorBoot(script, SEED, theirs, **boot), peer)
        self.ready = self.collector.start()
        first_tick = boot.get("first_tick", 0)
        self.learner = LearnerSide(
            self.transport.ring.learner_port(peer),
            self.transport.ingress.consumer(peer, first_tick=first_tick),
            first_tick,
        )
        self._reader = ReportReader()
        self._thread = threading.Thread(target=self.collector.collect, daemon=True)
        self._thread.start()

    def report(self) -> CollectorReport | None:
        board = self.transport.board.read()
        return None if board is None else self._reader.read(board)

    def stop(self) -> None:
        self.learner.port.stop()
        self._thread.join(SOON)
        assert not self._thread.is_alive()
        self.collector.close()


Starter = Callable[..., Run]


@pytest.fixture
def start() -> Iterator[Starter]:
    runs: list[Run] = []

    def starter(*given: Any, **named: Any) -> Run:
        runs.append(Run(*given, **named))
        return runs[-1]

    yield starter
    for run in runs:
        run.stop()


def expected_rows(script: ScriptedFactory, num_envs: int, ticks: int) -> Tensor:
    """The rows of a collector, by stepping the environments here."""
    env = script(num_envs=num_envs, seed=SEED)
    observation = env.reset().clone()
    rows = []
    for tick in range(ticks):
        action = actions(tick, num_envs)
        outcome = env.step(action)
        packed = torch.empty(num_envs, LAYOUT.width)
        LAYOUT.pack(
            packed,
            observation=observation,
            action=action,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            next_observation=outcome.next_observation,
        )
        rows.append(packed[~outcome.invalid])
        observation = outcome.observation.clone()
    return torch.cat(rows)


@pytest.mark.parametrize(
    ("depth", "slot_rows"),
    [(2, 5), (1, 2), (3, 4)],
    ids=["a vector a slot", "a vector needs more slots than there are", "a part left over"],
)
def test_every_row_arrives_in_order_but_those_of_worlds_that_diverged(
    start: Starter, depth: int, slot_rows: int
) -> None:
    run = start(FAULTY, settings(num_envs=5, depth=depth, slot_rows=slot_rows))
    run.learner.serve(14)
    run.learner.settle()
    rows = run.learner.rows
    assert torch.equal(rows, expected_rows(FAULTY, 5, 14))
    batch = LAYOUT.view(rows)
    assert batch.truncated.sum() > 0
    over = batch.done == 1.0
    assert bool((batch.next_observation[over, 1] > 0).all()), "the terminal observation is kept"
    assert bool((batch.bootstrap == 1.0 - batch.done + batch.truncated).all())
    report = run.report()
    assert report is not None
    assert report.totals.invalid_rows == 7
    assert report.totals.instability == {"nonfinite": 7}
    counters = run.transport.ingress.counters()
    assert counters.occupancy == 0
    assert (counters.ingress_slot_rows, counters.early_returns) == (slot_rows, 0)


@dataclass(frozen=True)
class SpoiltFactory:
    """Environments that take for valid what is not: of a foreign framework, say."""

    spoil: Callable[[int, int, StepOutcome], None]
    """Changes the outcome of a step, given the number of the step and of environments."""

    def __call__(self, *, num_envs: int, seed: int) -> ScriptedEnv:
        spoil = self.spoil

        class Spoilt(ScriptedEnv):
            def step(self, action: Tensor) -> StepOutcome:
                number = self._steps
                outcome = super().step(action)
                spoil(number, num_envs, outcome)
                return outcome

        return Spoilt(ScriptedFactory(), num_envs, seed)


@pytest.mark.parametrize("env", [0, 3, 6])
@pytest.mark.parametrize("capacity", [1, 2, 3])
@pytest.mark.parametrize(
    ("field", "place"),
    [("reward", "reward"), ("next_observation", "next observation column 2")],
)
def test_a_bad_number_that_the_environment_takes_for_valid_is_left_out(
    start: Starter, capacity: int, env: int, field: str, place: str
) -> None:
    groups = {1: (7,), 2: (4, 3), 3: (3, 2, 2)}[capacity]
    group, own = next(
        (group, env - sum(groups[:group]))
        for group in range(capacity)
        if env < sum(groups[: group + 1])
    )
    steps: dict[int, int] = {}

    def spoil(number: int, num_envs: int, outcome: StepOutcome) -> None:
        # Groups step one after the other; those of a size are told apart by their turn.
        turn = steps[number] = steps.get(number, -1) + 1
        if (number, turn) == (4, group):
            values: Tensor = getattr(outcome, field)
            values.view(num_envs, -1)[own, -1] = torch.nan

    run = start(SpoiltFactory(spoil), settings(num_envs=7, capacity=capacity))
    run.learner.serve(12)
    run.learner.settle()
    rows = LAYOUT.view(run.learner.rows)
    arrived = [(tick, one) for tick in range(12) for one in range(7) if (tick, one) != (4, env)]
    local = [one - sum(groups[:g]) for g in range(capacity) for one in range(*_span(groups, g))]
    assert rows.observation[:, 0].tolist() == [float(local[one]) for _, one in arrived]
    assert run.learner.rows.isfinite().all()
    report = run.report()
    assert report is not None
    assert report.totals.invalid_rows == 1
    assert report.metrics["Train/invalid_rows"] == 1.0
    assert report.totals.instability == {"nonfinite": 1}
    assert str(report.totals.first_unsound) == f"tick 4, env {env}: {place} is nan"
    # Of two episodes an environment in 12 ticks, the spoilt one has no return.
    assert report.totals.episodes == 2 * 7 - 1
    assert report.metrics["Train/mean_reward"] < torch.inf


def _span(groups: tuple[int, ...], group: int) -> tuple[int, int]:
    return sum(groups[:group]), sum(groups[: group + 1])


def test_an_action_of_the_policy_that_is_no_number_is_named(start: Starter) -> None:
    class Deaf(ScriptedEnv):
        def step(self, action: Tensor) -> StepOutcome:
            return super().step(torch.zeros_like(action))

    def make(*, num_envs: int, seed: int) -> ScriptedEnv:
        return Deaf(ScriptedFactory(), num_envs, seed)

    run = start(make, settings(num_envs=4))
    run.learner.serve(2)
    run.learner.settle()
    action = actions(2, 4)
    action[3, 1] = torch.nan
    run.learner.port.respond(2, 2, action)
    run.learner.tick += 1
    run.learner.settle()
    report = run.report()
    assert report is not None
    assert str(report.totals.first_unsound) == "tick 2, env 3: action column 1 is nan"
    assert report.totals.invalid_rows == 1


@pytest.mark.parametrize("capacity", [2, 4])
def test_groups_of_environments_are_served_each_in_its_slot(start: Starter, capacity: int) -> None:
    run = start(runtime=settings(num_envs=7, capacity=capacity))
    assert run.ready.groups == capacity
    run.learner.serve(12)
    run.learner.settle()
    rows = LAYOUT.view(run.learner.rows)
    assert rows.reward.shape == (7 * 12,)
    sizes = [run.transport.ring.group_size(group) for group in range(capacity)]
    environments = [float(env) for size in sizes for env in range(size)]
    assert rows.observation[:, 0].tolist() == environments * 12
    expected = [row for tick in range(12) for size in sizes for row in actions(tick, size).tolist()]
    assert torch.equal(rows.action, torch.tensor(expected))
    assert run.transport.ingress.counters().published_sequence == 12, "a chunk a vector"


def test_groups_draw_one_stream_in_the_order_of_ticks_and_environments(start: Starter) -> None:
    run = start(runtime=settings(num_envs=7, capacity=3))
    run.learner.serve(4)
    run.learner.settle()
    generator = torch.Generator().manual_seed(SEED)
    stream = torch.rand(7 * 5, generator=generator)
    rows = LAYOUT.view(run.learner.rows)
    assert torch.equal(rows.observation[:, 2], stream[: 7 * 4])
    assert torch.equal(rows.next_observation[:, 2], stream[7:])


def test_episodes_that_begin_anew_are_marked_in_the_request(start: Starter) -> None:
    run = start(FAULTY, settings(num_envs=5))
    begun = []
    for tick in range(8):
        run.learner.settle()
        slot = run.transport.ring.slot(0)
        begun.append(slot.done.nonzero().flatten().tolist())
        run.learner.port.respond(tick, tick, actions(tick, 5))
        run.learner.tick += 1
    assert begun == [[], [], [], [0], [1, 2], [3, 4], [], [0, 1, 2, 3, 4]]


def test_the_collector_says_what_it_made(start: Starter) -> None:
    ready = start().ready
    assert (ready.episode_length, ready.groups) == (EPISODE_LENGTH, 1)
    assert [term.name for term in ready.terms] == ["alive"]
    assert "log_sum:reward/alive" in ready.metric_names
    assert 0.0 < ready.start_s < SOON


def test_figures_are_of_the_ticks_since_the_last_report(start: Starter) -> None:
    run = start(FAULTY, settings(num_envs=5))
    run.learner.serve(10)
    run.learner.settle()
    report = run.report()
    assert report is not None
    assert (report.tick, report.ticks, report.env_steps) == (10, 10, 50)
    assert (report.totals.episodes, report.totals.timeouts) == (4, 2)
    env = FAULTY(num_envs=5, seed=SEED)
    env.reset()
    means = [env.step(torch.zeros(5, ACTION_DIM)).reward.mean().item() for _ in range(10)]
    assert report.log["reward/alive"] == pytest.approx(sum(means) / 10)
    assert report.log["Episode_Termination/fell"] == 2.0
    assert report.metrics["Episode/timeout_rate"] == 0.5
    assert report.metrics["Perf/collector_env_step_update_state_ms"] == pytest.approx(0.4)
    assert report.metrics["Perf/collector_env_step_action_backend_ms"] == pytest.approx(0.5)
    cycle = sum(
        value
        for tag, value in report.metrics.items()
        if tag.endswith("_ms") and "env_step_" not in tag
    )
    # The last publication is not in the sum yet, and the ticks are short.
    assert 0.5 * report.seconds < cycle * 10 / 1e3 <= report.seconds
    assert report.flight.max_in_flight == 1
    assert report.steps_per_second > 0.0
    assert run.report() is None


def test_reports_come_as_seldom_as_asked_and_lose_nothing(start: Starter) -> None:
    run = start(metrics_interval=4)
    assert run.report() is not None  # at the start
    run.learner.serve(6)
    run.learner.settle()
    report = run.report()
    assert report is not None
    assert (report.tick, report.ticks) == (4, 4)
    run.learner.port.respond(6, 6, actions(6, 4))
    run.learner.tick = 7
    run.learner.serve(1)
    run.learner.settle()
    report = run.report()
    assert report is not None
    assert (report.tick, report.ticks) == (8, 4)


@pytest.mark.parametrize("capacity", [1, 2, 3])
@pytest.mark.parametrize("before", [1, 2])
def test_a_snapshot_continues_the_environments_random_numbers(
    start: Starter, before: int, capacity: int
) -> None:
    """Also with another number of groups than it was taken with."""
    first = start(runtime=settings(num_envs=3, capacity=before))
    first.learner.serve(5, Command.SNAPSHOT)
    first.learner.settle()
    snapshot = first.transport.board.read_snapshot()
    assert snapshot is not None
    assert snapshot.tick == 5
    runtime = settings(num_envs=3, capacity=capacity)
    second = start(runtime=runtime, first_tick=5, rng_state=snapshot.state)
    second.learner.settle()
    stream = torch.rand(3 * 7, generator=torch.Generator().manual_seed(SEED))
    found = [
        row
        for group in range(capacity)
        for row in second.transport.ring.slot(group).observation[:, 2].tolist()
    ]
    assert found == stream[3 * 6 :].tolist()  # after a reset and five steps


@pytest.mark.parametrize("dimension", [2, 9])
def test_environments_of_another_size_are_refused(dimension: int) -> None:
    message = rf"\(4, {dimension}, 2\); the rings are for \(4, 3, 2\)"
    with pytest.raises(ValueError, match=message):
        Run(ScriptedFactory(observation_dim=dimension))


def test_environments_are_closed_at_the_end(start: Starter) -> None:
    run = start(runtime=settings(num_envs=4, capacity=2))
    run.learner.serve(2)
    run.stop()
    envs = [group.env for group in run.collector._groups]
    assert [env.closed for env in envs if isinstance(env, ScriptedEnv)] == [True, True]


@pytest.mark.parametrize(
    "timings",
    [
        StepTimings(),
        StepTimings(apply_action=1e4, backend=1e4),
        StepTimings(action_validate=0.001, backend=0.002, began_ns=1),
        StepTimings(backend=0.001, began_ns=2**62),
    ],
    ids=["none", "longer than the step", "before it", "after it"],
)
def test_parts_of_a_step_lie_within_it_whatever_an_environment_says(
    timings: StepTimings, tmp_path: Path
) -> None:
    tracer = FileTracer(TraceSettings(tmp_path, 0, Role.COLLECTOR, 1, 10**6))
    clock = PhaseClock(tracer)
    for _ in range(3):
        clock.charge_step(timings)
    tracer.close()
    verdict = validate([tracer.path])
    assert verdict.sound, verdict.faults
    assert verdict.spans == 3 * 6
