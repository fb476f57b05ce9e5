from __future__ import annotations

import asyncio

import pytest

from drivetrain_trainer import stats
from drivetrain_trainer.stats import Workflow, stat_scope, workflow


def test_a_rollout_is_one_of_training_unless_told_otherwise() -> None:
    assert stat_scope() == "rollout"
    with workflow(Workflow.EVALUATION):
        assert stat_scope() == "eval-rollout"
        with workflow(Workflow.ROLLOUT):
            assert stat_scope() == "rollout"
    with pytest.raises(RuntimeError), workflow(Workflow.EVALUATION):
        raise RuntimeError
    assert stat_scope() == "rollout"


async def episode(reward: float, started: asyncio.Event, go: asyncio.Event) -> None:
    """A user's workflow: it records on completion and does not know what it runs for."""
    started.set()
    await go.wait()
    stats.get(stat_scope()).scalar(reward=reward)


def test_tasks_keep_the_workflow_that_they_were_begun_in() -> None:
    async def main() -> None:
        go = asyncio.Event()
        started = [asyncio.Event() for _ in range(4)]
        with workflow(Workflow.EVALUATION):
            tasks = [asyncio.create_task(episode(9.0, one, go)) for one in started[:2]]
        tasks += [asyncio.create_task(episode(1.0, one, go)) for one in started[2:]]
        for one in started:
            await one.wait()
        go.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert stats.export_all() == {
        "eval-rollout/reward": 9.0,
        "eval-rollout/reward__count": 2.0,
        "rollout/reward": 1.0,
        "rollout/reward__count": 2.0,
    }
