from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from memory_backend import MemoryBackend
from structlog.testing import capture_logs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.metrics import MetricSchema, Owner, Quantity, Unit, UnknownMetricError
from drivetrain_trainer.telemetry.backends.base import BackendCapabilities, BackendContext
from drivetrain_trainer.telemetry.facts import EvaluationFigures
from drivetrain_trainer.telemetry.logger import TrainingLogger
from drivetrain_trainer.telemetry.record import Record, Table
from drivetrain_trainer.telemetry.validation import MetricReportError


class MemoryTerminal:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.evaluations: list[EvaluationFigures] = []
        self.events: list[str] = []

    def start(self) -> None:
        self.events.append("start")

    def update(self, record: Record) -> None:
        self.records.append(record)

    def evaluated(self, evaluation: EvaluationFigures) -> None:
        self.evaluations.append(evaluation)

    def close(self) -> None:
        self.events.append("close")


def by_owner(report: Mapping[str, float]) -> dict[Owner, dict[str, float]]:
    """A report's parts, as the schema has their owners."""
    parts: dict[Owner, dict[str, float]] = {}
    for tag, value in report.items():
        parts.setdefault(MetricSchema().lookup(tag).owner, {})[tag] = value
    return parts


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def terminal() -> MemoryTerminal:
    return MemoryTerminal()


def test_one_submission_feeds_backend_and_terminal(
    backend: MemoryBackend, terminal: MemoryTerminal
) -> None:
    with TrainingLogger([backend], terminal, algo=AlgoName.SAC) as logger:
        record = logger.submit(
            {Owner.LEARNER: {"Loss/actor": 2.0}, Owner.COLLECTOR: {"Train/mean_reward": 3.0}},
            {Owner.LEARNER: {"Loss/critic": Quantity(1.5, Unit.NONE)}},
            env_steps=640,
            iteration=10,
        )
    assert backend.records == terminal.records == [record]
    assert (record.env_steps, record.iteration) == (640, 10)
    assert record.values == {
        "Loss/actor": 2.0,
        "Train/mean_reward": 3.0,
        "Loss/critic": 1.5,
        "Train/iteration": 10.0,
    }
    assert backend.closed
    assert terminal.events == ["start", "close"]


def test_each_value_is_persisted_unsmoothed(backend: MemoryBackend) -> None:
    with TrainingLogger([backend], algo=AlgoName.SAC) as logger:
        for step, loss in enumerate([1.0, 9.0, 2.0], start=1):
            logger.submit({Owner.LEARNER: {"Loss/actor": loss}}, env_steps=step, iteration=step)
    assert [record.values["Loss/actor"] for record in backend.records] == [1.0, 9.0, 2.0]


def test_rows_per_second_reach_the_terminal_and_never_the_backend(
    backend: MemoryBackend, terminal: MemoryTerminal
) -> None:
    report = {"Perf/iteration_time": 0.01, "Perf/learning_time": 0.005}
    with TrainingLogger([backend], terminal, algo=AlgoName.SAC, rows_per_iteration=256) as logger:
        logger.submit({Owner.LEARNER: report}, env_steps=1, iteration=1, buffer_rows=77)
        idle = report | {"Perf/learning_time": 0.0}
        logger.submit({Owner.LEARNER: idle}, env_steps=2, iteration=2)
    learning, warming_up = terminal.records
    assert learning.learner_rows_per_second == pytest.approx(25_600)
    assert learning.buffer_rows == 77
    assert warming_up.learner_rows_per_second is None
    assert set(backend.records[0].values) == {*report, "Train/iteration"}


def test_a_bad_report_raises_and_reaches_nobody(
    backend: MemoryBackend, terminal: MemoryTerminal
) -> None:
    with TrainingLogger([backend], terminal, algo=AlgoName.SAC) as logger:
        with pytest.raises(UnknownMetricError):
            logger.submit(
                {Owner.LEARNER: {"Loss/actor": 1.0, "Loss/oops": 1.0}}, env_steps=1, iteration=1
            )
        assert logger.stats.reports == 0
    assert backend.records == []
    assert terminal.records == []


def test_values_that_are_not_finite_are_passed_on_counted_and_warned_of_once(
    backend: MemoryBackend,
) -> None:
    with capture_logs() as logs, TrainingLogger([backend], algo=AlgoName.SAC) as logger:
        for step in (1, 2):
            logger.submit(
                {Owner.LEARNER: {"Loss/actor": math.nan, "Loss/critic": math.inf}},
                env_steps=step,
                iteration=step,
            )
    assert logger.stats.nonfinite_values == 4
    assert math.isnan(backend.records[1].values["Loss/actor"])
    assert [entry["event"] for entry in logs] == ["metrics are not finite"]
    assert logs[0]["tags"] == ["Loss/actor", "Loss/critic"]


def test_an_evaluation_is_shown_and_left_to_the_statistics_to_persist(
    backend: MemoryBackend, terminal: MemoryTerminal
) -> None:
    figures = EvaluationFigures(5000, 10.0, 1.5, 5, 12.0, 4000, mean_length=99.0)
    with TrainingLogger([backend], terminal, algo=AlgoName.SAC) as logger:
        logger.evaluated(figures)
    assert terminal.evaluations == [figures]
    assert backend.records == []


def test_rank_zero_alone_owns_backend_and_terminal(backend: MemoryBackend) -> None:
    with pytest.raises(ValueError, match="rank 1 was given a backend"):
        TrainingLogger([backend], algo=AlgoName.SAC, rank=1, world_size=1)


def test_other_ranks_open_neither_files_nor_a_terminal(
    context: BackendContext, capsys: pytest.CaptureFixture[str]
) -> None:
    with TrainingLogger.open(context, rank=1) as logger:
        logger.submit({Owner.LEARNER: {"Loss/actor": 1.0}}, env_steps=1, iteration=1)
    assert list(context.directory.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_a_run_directory_gets_event_files_and_plain_lines(
    context: BackendContext,
    report: dict[str, float],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with TrainingLogger.open(context) as logger:
        logger.submit(by_owner(report), env_steps=531_200, iteration=8300)
    assert logger.stats.backends[0].written == 1
    events = EventAccumulator(str(context.directory)).Reload()
    assert set(events.Tags()["scalars"]) == {*report, "Train/iteration"}
    shown = capsys.readouterr()
    assert "training sac on half_cheetah" in shown.out
    assert "reward 5,123.2" in shown.out
    assert shown.err == ""


def test_closing_twice_is_harmless(backend: MemoryBackend) -> None:
    logger = TrainingLogger([backend], algo=AlgoName.SAC)
    first = logger.close()
    assert logger.close() == first


OVERLAPPING = {
    "Perf/iteration_time": 0.010,
    "Perf/learning_time": 0.008,
    "Perf/learner_collector_wait_ms": 3.0,
}


def test_phases_beyond_the_iteration_are_counted_and_warned_of_once(
    backend: MemoryBackend,
) -> None:
    nested = OVERLAPPING | {
        "Perf/learner_collector_wait_ms": 2.0,
        "Perf/learner_inference_forward_ms": 9.0,
    }
    with capture_logs() as logs, TrainingLogger([backend], algo=AlgoName.SAC) as logger:
        logger.submit({Owner.LEARNER: nested}, env_steps=1, iteration=1)
        assert logger.stats.overfull_timelines == 0
        for step in (2, 3):
            logger.submit({Owner.LEARNER: OVERLAPPING}, env_steps=step, iteration=step)
    assert logger.stats.overfull_timelines == 2
    (entry,) = logs
    assert "more than Iter Wall" in entry["event"]
    assert (entry["log_level"], entry["env_steps"]) == ("warning", 2)
    assert set(backend.records[1].values) == {*OVERLAPPING, "Train/iteration"}


def test_a_rollout_on_the_learners_thread_is_accounted(backend: MemoryBackend) -> None:
    report = {
        Owner.LEARNER: {"Perf/iteration_time": 1.0, "Perf/learning_time": 0.6},
        Owner.COLLECTOR: {"Perf/collection_time": 0.5},
    }
    for algo, overfull in ((AlgoName.PPO, 1), (AlgoName.APPO, 0)):
        with TrainingLogger([backend], algo=algo) as logger:
            logger.submit(report, env_steps=1, iteration=1)
            assert logger.stats.overfull_timelines == overfull, algo


LOADS = Table(
    ("layer", "expert", "tokens", "label"),
    ((0, 0, 30, "a"), (0, 1, 10.5, "b")),
    index=("layer", "expert"),
)


@pytest.mark.parametrize(
    ("capabilities", "kept", "values"),
    [
        (BackendCapabilities(), {}, {}),
        (BackendCapabilities(tables=True, scalar_per_expert=True), {"m": LOADS}, {}),
        (
            BackendCapabilities(scalar_per_expert=True),
            {},
            {
                "moe_balance/layer_0/expert_0/tokens": 30.0,
                "moe_balance/layer_0/expert_1/tokens": 10.5,
            },
        ),
    ],
    ids=["neither", "tables", "scalars"],
)
def test_tables_reach_a_backend_as_it_can_hold_them(
    backend: MemoryBackend,
    capabilities: BackendCapabilities,
    kept: dict[str, Table],
    values: dict[str, float],
) -> None:
    backend.capabilities = capabilities
    with TrainingLogger([backend], algo=AlgoName.SAC) as logger:
        logger.submit(env_steps=1, iteration=1, tables={"moe_balance/expert_loads": LOADS})
    (record,) = backend.records
    assert list(record.tables.values()) == list(kept.values())
    assert record.values == {"Train/iteration": 1.0, **values}


@pytest.mark.parametrize("name", ["expert_loads", "Loss/actor"])
def test_a_table_has_the_name_of_a_familys_member(backend: MemoryBackend, name: str) -> None:
    with (
        TrainingLogger([backend], algo=AlgoName.SAC) as logger,
        pytest.raises((UnknownMetricError, MetricReportError), match=name),
    ):
        logger.submit(env_steps=1, iteration=1, tables={name: LOADS})


def test_what_is_reduced_already_is_persisted_and_not_shown(
    backend: MemoryBackend, terminal: MemoryTerminal
) -> None:
    with TrainingLogger([backend], terminal, algo=AlgoName.SAC) as logger:
        logger.persist({Owner.TRACKER: {"rollout/reward": 2.0}}, env_steps=5, iteration=1)
    assert [record.values for record in backend.records] == [{"rollout/reward": 2.0}]
    assert terminal.records == []
