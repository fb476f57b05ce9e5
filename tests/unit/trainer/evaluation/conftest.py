"""A scripted environment, and a run directory with a checkpoint of an untrained policy."""

from __future__ import annotations

import sys
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drivetrain_api.attempt import AttemptSpec
from drivetrain_api.compose import compose
from drivetrain_api.tasks import TaskParameters, TaskSpec, load_task
from drivetrain_trainer.algorithms.sac.agent import SacAgent
from drivetrain_trainer.envs.vector_env import EnvRequest, StepOutcome, StepTimings
from drivetrain_trainer.evidence.checkpoint import CheckpointStore
from drivetrain_trainer.evidence.checkpoint_manifest import LEARNER_PART, CheckpointSubject
from drivetrain_trainer.evidence.run_config import write_run_config
from drivetrain_trainer.evidence.run_directory import RunDirectory

MODULE = "scripted_environment"


class ScriptedEnv:
    """Environment i's episodes have the lengths of row i, over and over; reward = action.

    A negative length is an episode whose world diverges at that step. Observations are
    (environment, step), so that a policy can tell where it is.
    """

    action_dim = 1
    observation_dim = 2
    step_seconds = 0.1
    log: Mapping[str, Tensor] = {}
    log_tags = ()
    log_families = ()
    timings = StepTimings()
    terms = ()

    def __init__(self, request: EnvRequest, lengths: Sequence[Sequence[int]], limit: int) -> None:
        self.request = request
        self.num_envs = request.num_envs
        self.episode_length = limit
        self.action_low, self.action_high = torch.tensor([-2.0]), torch.tensor([4.0])
        self.instability: Counter[str] = Counter()
        self.closed = 0
        self._lengths = [list(lengths[i % len(lengths)]) for i in range(self.num_envs)]
        self._episode = [0] * self.num_envs
        self._step = [0] * self.num_envs

    def reset(self) -> Tensor:
        return self._observe()

    def step(self, action: Tensor) -> StepOutcome:
        over = torch.zeros(self.num_envs, dtype=torch.bool)
        invalid = torch.zeros(self.num_envs, dtype=torch.bool)
        for index in range(self.num_envs):
            self._step[index] += 1
            row = self._lengths[index]
            length = row[self._episode[index] % len(row)]
            if self._step[index] == abs(length):
                (over if length > 0 else invalid)[index] = True
                self.instability["BADQACC"] += length < 0
                self._episode[index] += 1
                self._step[index] = 0
        reward = torch.where(invalid, 0.0, action[:, 0])
        return StepOutcome(
            observation=self._observe(),
            next_observation=self._observe(),
            reward=reward,
            terminated=over,
            truncated=torch.zeros_like(over),
            invalid=invalid,
        )

    def rng_state(self) -> Tensor:
        return torch.zeros(0, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor) -> None:
        pass

    def render_state(self) -> None:
        return None

    def close(self) -> None:
        self.closed += 1

    def _observe(self) -> Tensor:
        return torch.tensor([[float(index), float(step)] for index, step in enumerate(self._step)])


class ScriptedTask:
    """A task whose environments follow a script, and those that were made."""

    def __init__(self, lengths: Sequence[Sequence[int]], limit: int) -> None:
        self.made: list[ScriptedEnv] = []
        self._lengths = lengths
        self._limit = limit
        self.spec = TaskSpec(
            name="scripted",
            factory=f"{MODULE}:make",
            observation_dim=2,
            action_dim=1,
            episode_length=limit,
        )

    def make(self, request: EnvRequest, _parameters: TaskParameters) -> ScriptedEnv:
        self.made.append(ScriptedEnv(request, self._lengths, self._limit))
        return self.made[-1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedTask]:
    def make(lengths: Sequence[Sequence[int]], limit: int = 100) -> ScriptedTask:
        task = ScriptedTask(lengths, limit)
        module = types.ModuleType(MODULE)
        module.make = task.make  # type: ignore[attr-defined] # a module made here
        monkeypatch.setitem(sys.modules, MODULE, module)
        return task

    return make


MakeRun = Callable[..., RunDirectory]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Run directories of an untrained SAC policy with checkpoints at the steps given."""

    def make(steps: Sequence[int] = (1000,), best: int | None = None, **spec: Any) -> RunDirectory:
        attempt = AttemptSpec.model_validate(
            {
                "name": "run",
                "namespace": "default",
                "uid": f"uid-{len(list(tmp_path.iterdir()))}",
                "attempt": 1,
                "created": datetime(2026, 3, 9, 18, 30, tzinfo=UTC),
                "spec": {
                    "algo": {"name": "sac", "actor_hidden": [16], "critic_hidden": [16]},
                    "task": {"name": "inverted_double_pendulum"},
                    **spec,
                },
            }
        )
        task = load_task(attempt.spec.task)
        composed = compose(attempt.spec, task)
        directory = RunDirectory.claim(attempt, tmp_path)
        device = {"configured": "auto", "resolved": "cpu"}
        write_run_config(
            directory,
            attempt,
            composed,
            task,
            resolved_devices={"learner": device, "collector_tensor": device},
            resolved_precision="fp32",
        )
        store = CheckpointStore(
            directory.checkpoints,
            subject=CheckpointSubject.of(composed, task),
            keep=10,
            fence=directory.fence,
        )
        for step in steps:
            agent = SacAgent(
                composed.algo,
                observation_dim=task.observation_dim,
                action_dim=task.action_dim,
                device=torch.device("cpu"),
                seed=step,
            )
            draft = store.draft(step)
            draft.write(LEARNER_PART, {"agent": agent.state_dict()})
            store.commit(draft, parts=[LEARNER_PART], iteration=step, best=step == best)
        return directory

    return make
