"""One seed, one run: what is learnt and every row of replay, to the bit, in real processes."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tiny_run import Attempt, Ranks
from torch import Tensor

from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.tasks import load_task
from drivetrain_api.training import Simulator, TaskConfig
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.evidence.checkpoint import load_part
from drivetrain_trainer.evidence.checkpoint_manifest import LEARNER_PART, rank_part
from drivetrain_trainer.runtime.replay_layout import Batch, RowLayout
from drivetrain_trainer.training.checkpointing import restore

ENVS = 2
WARM_UP = 8
"""Ticks with uniform actions, before anything is learnt."""
LAYOUT = RowLayout(4, 1)


@dataclass(frozen=True)
class Left:
    """What a run left in its last checkpoint."""

    attempt: Attempt
    parameters: str
    """Digest of networks, optimizers, normalisers."""
    replay: str
    """Digest of the rows and the position among them."""
    rows: Tensor
    env_rng: Tensor

    @property
    def first_tick(self) -> Batch:
        return LAYOUT.view(self.rows[:ENVS])


def numpys() -> tuple[bytes, str]:
    """NumPy's global generator, which is nobody's."""
    state: Any = np.random.get_state()  # noqa: NPY002 - the global one is what must not be touched
    return state[1].tobytes(), repr(state[2:])


def run(ranks: Ranks, *, steps: int = 120, **sections: dict[str, Any]) -> Left:
    """A new run to its end; whose set-up and course leave NumPy's global generator alone."""
    ranks.uid, ranks.attempts = f"run-{len(ranks.made)}", 0
    before = numpys()
    checkpoint = {"save_replay": True} | sections.pop("checkpoint", {})
    training = {"total_env_steps": steps}
    attempt = ranks.attempt(checkpoint=checkpoint, training=training, **sections)
    assert attempt.run() is ExitCode.DONE
    assert numpys() == before
    latest = attempt.checkpoints.latest()
    assert latest is not None
    own = load_part(latest, rank_part(0))
    rows = own["replay"]["rows"]
    learnt = io.BytesIO()
    torch.save(load_part(latest, LEARNER_PART)["agent"], learnt)
    replay = hashlib.sha256(rows.numpy().tobytes())
    replay.update(f"{own['replay']['next']} {own['replay']['capacity']}".encode())
    return Left(
        attempt,
        parameters=hashlib.sha256(learnt.getvalue()).hexdigest(),
        replay=replay.hexdigest(),
        rows=rows,
        env_rng=own["env_rng"],
    )


@pytest.mark.slow
def test_a_seed_decides_a_run_and_each_of_its_two_seeds_a_part(ranks: Ranks) -> None:
    first, again = run(ranks), run(ranks)
    assert again.parameters == first.parameters
    assert again.replay == first.replay
    assert again.rows.shape[0] == 120
    assert torch.equal(again.env_rng, first.env_rng)

    other = run(ranks, seed=1)
    assert other.parameters != first.parameters
    assert not torch.equal(other.first_tick.observation, first.first_tick.observation)
    assert not torch.equal(other.first_tick.action, first.first_tick.action)

    # The algorithm's seed leaves the environments alone: they start alike, and are acted on
    # differently. The environments' seed does the opposite.
    algorithm = run(ranks, algo={"seed": 1})
    assert algorithm.parameters != first.parameters
    assert torch.equal(algorithm.first_tick.observation, first.first_tick.observation)
    assert not torch.equal(algorithm.first_tick.action, first.first_tick.action)
    environments = run(ranks, env={"seed": 1})
    assert environments.parameters != first.parameters
    assert not torch.equal(environments.first_tick.observation, first.first_tick.observation)
    warm_up = ENVS * WARM_UP
    actions = [LAYOUT.view(left.rows[:warm_up]).action for left in (environments, first)]
    assert torch.equal(actions[0], actions[1])


@pytest.mark.slow
def test_what_goes_on_from_one_checkpoint_goes_on_alike(ranks: Ranks) -> None:
    """Not as if it had not been stopped: every world starts a new episode."""
    source = run(ranks, steps=80)
    resume = {"resume_from": str(source.attempt.directory)}
    first, again = (run(ranks, steps=120, checkpoint=resume) for _ in range(2))
    assert again.parameters == first.parameters
    assert again.replay == first.replay
    assert torch.equal(first.rows[:80], source.rows)
    assert first.rows.shape[0] == 120
    unbroken = run(ranks, steps=120)
    assert torch.equal(unbroken.rows[:80], source.rows)
    assert unbroken.replay != first.replay


class Untouched:
    """An agent or a replay that is told its state, and does nothing with it."""

    def load_state_dict(self, state: Any) -> None:
        del state


@pytest.mark.slow
def test_another_simulator_starts_its_generators_and_another_replay_is_refused(
    ranks: Ranks,
) -> None:
    source = run(ranks, steps=40).attempt
    checkpoint = source.checkpoints.latest()
    assert checkpoint is not None
    taken: Any = Untouched()
    for sim, kept in ((Simulator.MUJOCO, True), (Simulator.MJWARP, False)):
        restored = restore(checkpoint, agent=taken, replay=taken, rank=0, sim=sim)
        assert (restored.env_rng_state is not None) == kept
    ranks.uid, ranks.attempts = "run-of-another-size", 0
    resumed = ranks.attempt(
        algo={"replay_rows": 500}, checkpoint={"resume_from": str(source.directory)}
    )
    assert resumed.run() is ExitCode.REFUSED
    assert "stored replay holds 1000 rows of width 12; this one 500" in (
        resumed.outcome.error or ""
    )
    assert "algo.replayRows" in (resumed.outcome.error or "")


@pytest.mark.parametrize("name", ["inverted_pendulum", "reacher"])
def test_environments_leave_every_global_generator_alone(name: str) -> None:
    before = numpys(), torch.get_rng_state()
    env = make_env(load_task(TaskConfig(name=name)), num_envs=3, seed=5)
    env.reset()
    for _ in range(60):  # longer than an episode of Reacher: worlds are reset on the way
        env.step(torch.zeros(3, env.action_dim))
    env.close()
    assert numpys() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
