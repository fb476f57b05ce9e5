from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from memory_backend import MemoryBackend

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.metrics import UnknownMetricError
from drivetrain_trainer import stats
from drivetrain_trainer.telemetry.backends.base import BackendCapabilities
from drivetrain_trainer.telemetry.logger import TrainingLogger
from drivetrain_trainer.telemetry.record import Table
from drivetrain_trainer.telemetry.stats_logger import StatsLogger
from drivetrain_trainer.telemetry.validation import MetricReportError

TABLES = BackendCapabilities(tables=True)


@pytest.fixture(autouse=True)
def _empty_trackers() -> Iterator[None]:
    stats.forget_all()
    yield
    stats.forget_all()


def test_a_commit_drops_counts_and_reaches_every_backend_at_the_global_step() -> None:
    backends = [MemoryBackend("tensorboard", TABLES), MemoryBackend("wandb", TABLES)]
    with TrainingLogger(backends, algo=AlgoName.SAC) as logger:
        StatsLogger(logger).commit(
            0, 7, 640, {"rollout/reward": 0.5, "rollout/reward__count": 4.0, "timeperf/save": 0.1}
        )
    for backend in backends:
        (record,) = backend.records
        assert (record.env_steps, record.iteration) == (640, 7)
        assert record.values == {"rollout/reward": 0.5, "timeperf/save": 0.1}


def test_nothing_to_commit_is_no_record() -> None:
    backend = MemoryBackend("tensorboard", TABLES)
    with TrainingLogger([backend], algo=AlgoName.SAC) as logger:
        StatsLogger(logger).commit(0, 1, 1, {"rollout/reward__count": 0.0})
        assert StatsLogger(logger).export_and_commit(0, 1, 1) == {}
    assert backend.records == []


def test_tables_go_along() -> None:
    backend = MemoryBackend("wandb", TABLES)
    table = Table(("layer", "tokens"), ((0, 5),))
    with TrainingLogger([backend], algo=AlgoName.SAC) as logger:
        StatsLogger(logger).commit(0, 1, 1, {}, tables={"moe_balance/expert_loads": table})
    assert backend.records[0].tables == {"moe_balance/expert_loads": table}


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ("rolout/reward", UnknownMetricError, "'rolout/reward'.*rollout/"),
        ("reward", UnknownMetricError, "'reward'"),
        ("Loss/actor", MetricReportError, "'Loss/actor'"),
        ("Train/iteration", MetricReportError, "'Train/iteration'"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_refuses_a_key_that_is_not_the_trackers(
    rank: int, key: str, error: type[Exception], message: str
) -> None:
    backend = MemoryBackend("tensorboard", TABLES)
    with TrainingLogger([] if rank else [backend], algo=AlgoName.SAC, rank=rank) as logger:
        with pytest.raises(error, match=message):
            StatsLogger(logger).commit(0, 1, 1, {key: 1.0})
        StatsLogger(logger).commit(0, 1, 1, {"rollout/reward": 1.0})
    assert len(backend.records) == 1 - rank


def test_training_rollout_and_evaluation_are_one_commit() -> None:
    backend = MemoryBackend("tensorboard", TABLES)
    workers = []
    for rewards in ([1.0], [2.0, 4.0, 6.0]):
        worker = stats.StatsTracker("rollout")
        for reward in rewards:
            worker.scalar(reward=reward)
        workers.append(worker.export())
    with stats.scope("ppo_actor"):
        stats.denominator(n_valid=torch.tensor([True, True, False]))
        stats.stat_compact("n_valid", loss=torch.tensor([1.0, 3.0, 9.0]))
    stats.get("eval-rollout").scalar(reward=9.0)
    with TrainingLogger([backend], algo=AlgoName.PPO) as logger:
        StatsLogger(logger).export_and_commit(0, 3, 30, streamed=workers)
    (record,) = backend.records
    assert record.values == {
        "eval-rollout/reward": 9.0,
        "ppo_actor/loss/avg": 2.0,
        "ppo_actor/loss/max": 3.0,
        "ppo_actor/loss/min": 1.0,
        "ppo_actor/n_valid": 2.0,
        "rollout/reward": 3.25,
    }


def test_what_a_rank_recorded_weighs_together_with_what_workers_streamed() -> None:
    for reward in (1.0, 1.0, 1.0):
        stats.get("rollout").scalar(reward=reward)
    with TrainingLogger([], algo=AlgoName.SAC) as logger:
        data = StatsLogger(logger).export_and_commit(
            0, 1, 1, streamed=[{"rollout/reward": 5.0, "rollout/reward__count": 1.0}]
        )
    assert data["rollout/reward"] == 2.0
