"""What is wrong with a world is told by environment, term and value; on both simulators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from poisoned_task import rail

from drivetrain_api.training import Simulator
from drivetrain_trainer.envs.definition import (
    EnvDefinition,
    ObservationTerm,
    ResetTerm,
    RewardTerm,
)
from drivetrain_trainer.envs.errors import NonFiniteResetError
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.state import TermState
from drivetrain_trainer.envs.terms import observations, resets, rewards
from drivetrain_trainer.envs.vector_env import EnvRequest

ENVS = 5
STILL = torch.zeros(ENVS, 1)

Spoil = Callable[[torch.Tensor], None]
"""Changes what a term gave, (N, ...)."""


class Spoiled:
    """A term's function whose values are changed on request."""

    def __init__(self, compute: Callable[[TermState], torch.Tensor]) -> None:
        self._compute = compute
        self.spoil: Spoil | None = None

    def __call__(self, state: TermState) -> torch.Tensor:
        values = self._compute(state).clone()
        if self.spoil is not None:
            spoil, self.spoil = self.spoil, None  # the observation after a reset is sound
            spoil(values)
        return values


class Trial:
    """Environments of five points on rails, every term of which can be spoilt once."""

    def __init__(
        self, simulator: Simulator = Simulator.MUJOCO, *, gear: float = 1.0, span: float = 1.0
    ) -> None:
        self.speed = Spoiled(observations.velocities())
        self.alive = Spoiled(lambda state: torch.ones(state.num_envs, dtype=state.qpos.dtype))
        self.env = ManagerEnv(
            EnvDefinition(
                model=rail(gear=gear, span=span),
                substeps=1,
                episode_length=50,
                observations=(
                    ObservationTerm("position", observations.positions()),
                    ObservationTerm("speed", self.speed),
                ),
                rewards=(
                    RewardTerm("alive", self.alive, 0.5),
                    RewardTerm("ctrl", rewards.squared_action, -0.1),
                ),
                terminations=(),
                resets=(ResetTerm("position", resets.add_uniform_positions(0.1)),),
            ),
            EnvRequest(num_envs=ENVS, seed=0, simulator=simulator),
        )
        self.env.reset()


Make = Callable[..., Trial]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Trial] = []

    def trial(*given: Simulator, gear: float = 1.0, span: float = 1.0) -> Trial:
        made.append(Trial(*given, gear=gear, span=span))
        return made[-1]

    yield trial
    for one in made:
        one.env.close()


def put(index: tuple[int, ...], value: float) -> Spoil:
    def spoil(values: torch.Tensor) -> None:
        values[index] = value

    return spoil


@pytest.mark.parametrize("env", [0, 2, ENVS - 1])
@pytest.mark.parametrize("value", [math.nan, -math.inf, 1e12])
def test_a_reward_term_is_named(make: Make, env: int, value: float) -> None:
    trial = make()
    trial.alive.spoil = put((env,), value)
    outcome = trial.env.step(STILL)
    assert outcome.invalid.nonzero().tolist() == [[env]]
    (element,) = outcome.unsound
    weighted = 0.5 * value
    assert str(element) == f"env {env}: reward term 'alive' is {weighted:g}"
    assert trial.env.instability["nonfinite"] == 1
    assert trial.env.step(STILL).unsound == ()


@pytest.mark.parametrize("env", [0, 2, ENVS - 1])
def test_an_observation_term_is_named(make: Make, env: int) -> None:
    trial = make()
    trial.speed.spoil = put((env, 0), math.inf)
    outcome = trial.env.step(STILL)
    assert outcome.invalid.nonzero().tolist() == [[env]]
    (element,) = outcome.unsound
    assert str(element) == f"env {env}: observation term 'speed' column 0 is inf"


def test_terms_that_are_sound_but_not_their_sum(make: Make) -> None:
    trial = make()
    trial.alive.spoil = put((3,), 1.99e10)  # half of it is below the limit
    action = STILL.clone()
    action[3] = 1.0
    trial.env._rewards._weights[1] = 9.99e9
    outcome = trial.env.step(action)
    assert outcome.invalid.nonzero().tolist() == [[3]]
    assert str(outcome.unsound[0]).startswith("env 3: sum of the reward terms is 1.99")


def test_many_elements_are_counted_and_a_few_named(make: Make) -> None:
    trial = make()
    trial.alive.spoil = put((), math.nan)
    outcome = trial.env.step(STILL)
    assert outcome.invalid.all()
    assert [element.env for element in outcome.unsound] == [0, 1, 2, 3]
    assert trial.env.instability["nonfinite"] == ENVS


def test_a_reset_that_is_not_finite_names_the_term(make: Make) -> None:
    trial = make()
    trial.speed.spoil = put((1, 0), math.nan)
    message = (
        "world 1 has observations that are not finite right after its reset:"
        " observation term 'speed' column 0 is nan"
    )
    with pytest.raises(NonFiniteResetError) as caught:
        trial.env.reset()
    assert str(caught.value) == message


@pytest.mark.parametrize("simulator", [Simulator.MUJOCO, Simulator.MJWARP])
def test_a_huge_control_is_reported_by_the_simulator(make: Make, simulator: Simulator) -> None:
    trial = make(simulator, span=1e12)
    action = STILL.clone()
    action[2] = 0.05
    for times in (1, 2):  # a counter that a reset cleared must not hide the second time
        outcome = trial.env.step(action)
        assert outcome.invalid.nonzero().tolist() == [[2]]
        assert str(outcome.unsound[0]) == "env 2: simulator warning BADCTRL"
        assert trial.env.instability["BADCTRL"] == times
        assert outcome.next_observation.isfinite().all()
    assert not trial.env.step(STILL).invalid.any()


@pytest.mark.parametrize("simulator", [Simulator.MUJOCO, Simulator.MJWARP])
def test_a_model_that_blows_up_is_reported_by_the_simulator(
    make: Make, simulator: Simulator
) -> None:
    trial = make(simulator, gear=1e13)
    action = STILL.clone()
    action[4] = 0.5
    outcome = trial.env.step(action)
    assert outcome.invalid.nonzero().tolist() == [[4]]
    assert str(outcome.unsound[0]) == "env 4: simulator warning BADQACC"
    assert trial.env.instability["BADQACC"] == 1
    assert trial.env.instability["nonfinite"] == 0
    assert (outcome.reward[4], bool(outcome.terminated[4])) == (0.0, False)
    # The world goes on from a new episode's state, and is as sound as the others.
    assert outcome.observation[4, 0].abs() <= 0.1
    assert torch.equal(outcome.observation[4], outcome.next_observation[4])
    after = trial.env.step(STILL)
    assert not after.invalid.any()
    assert after.next_observation.isfinite().all()
