"""Physics that runs on while the host enqueues: when it is waited for, and who pays."""

from __future__ import annotations

from time import perf_counter_ns

import torch
from fake_backends import DEFINITION, FakeNative
from torch import Tensor

from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.vector_env import EnvRequest
from drivetrain_trainer.physics.port import Divergence

WAIT_MS = 20.0


class StandInStep:
    """An event of a device that is done after a while."""

    def __init__(self, divergence: Divergence | None = None) -> None:
        self.divergence = divergence
        self.waits = 0

    def wait(self) -> Divergence | None:
        self.waits += 1
        until = perf_counter_ns() + int(WAIT_MS * 1e6)
        while perf_counter_ns() < until:
            pass
        return self.divergence


class AsynchronousPhysics(FakeNative):
    """Answers at once with a step under way."""

    def __init__(self, num_worlds: int) -> None:
        super().__init__(num_worlds)
        self.pending = StandInStep()

    def step(self, substeps: int) -> StandInStep:
        super().step(substeps)
        return self.pending


def make(num_envs: int = 3) -> tuple[ManagerEnv, AsynchronousPhysics]:
    physics = AsynchronousPhysics(num_envs)
    env = ManagerEnv(DEFINITION, EnvRequest(num_envs=num_envs, seed=0), physics=physics)
    env.reset()
    return env, physics


def action(num_envs: int = 3) -> Tensor:
    return torch.zeros(num_envs, 1)


def test_the_wait_for_physics_is_charged_to_the_backend_not_to_who_reads_first() -> None:
    env, physics = make()
    env.step(action())
    timings = env.timings
    assert physics.pending.waits == 1
    assert timings.backend >= WAIT_MS
    assert timings.update_state < WAIT_MS
    assert timings.reset_done < WAIT_MS


def test_the_phases_still_add_up_to_the_step() -> None:
    env, _ = make()
    before = perf_counter_ns()
    env.step(action())
    whole = (perf_counter_ns() - before) * 1e-6
    timings = env.timings
    parts = (
        timings.action_validate,
        timings.apply_action,
        timings.backend,
        timings.update_state,
        timings.reset_done,
    )
    assert all(part >= 0 for part in parts)
    assert sum(parts) <= whole


def test_what_was_wrong_comes_with_the_wait() -> None:
    env, physics = make()
    worlds = torch.tensor([False, True, False])
    physics.warning_names = ("BADQACC",)
    physics.pending = StandInStep(Divergence(worlds=worlds, counts={"BADQACC": 1}))
    outcome = env.step(action())
    assert outcome.invalid.tolist() == [False, True, False]
    assert env.instability["BADQACC"] == 1


def test_the_next_synchronous_step_is_charged_no_old_wait() -> None:
    env, physics = make()
    env.step(action())
    physics.pending = None  # type: ignore[assignment]  # a step that found nothing wrong
    env.step(action())
    assert env.timings.backend < WAIT_MS


def test_environments_over_a_backend_that_tells_nothing_say_so() -> None:
    env, _ = make()
    told = env.get_backend_runtime_diagnostics()
    assert told.available is False
    assert "AsynchronousPhysics" in (told.unavailable_reason or "")
