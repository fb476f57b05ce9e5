"""How point_reach is made: a model, and terms over its state."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from drivetrain_api.metrics import Family, Owner, Unit
from drivetrain_trainer.envs.definition import (
    EnvDefinition,
    LogTerm,
    ObservationTerm,
    ResetDraft,
    ResetTerm,
    RewardTerm,
    TerminationTerm,
)
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.rng import ManagerRng
from drivetrain_trainer.envs.state import TermState
from drivetrain_trainer.envs.terms import observations, resets, rewards
from drivetrain_trainer.envs.vector_env import EnvRequest
from point_reach import PointReachParameters

REACHED = 0.05
SPEED_REACHED = 0.2


def make(request: EnvRequest, parameters: PointReachParameters) -> ManagerEnv:
    """The factory that the task names."""
    return ManagerEnv(define(parameters), request)


def define(parameters: PointReachParameters) -> EnvDefinition:
    """Terms are functions of the state of all worlds at once: (N, ...) tensors in and out."""
    return EnvDefinition(
        model=Path(__file__).parent / "point.xml",
        substeps=5,
        episode_length=parameters.episode_length,
        observations=(
            ObservationTerm("position", observations.positions(0, 2)),
            ObservationTerm("velocity", observations.velocities(0, 2)),
            ObservationTerm("to_target", to_target),
        ),
        rewards=(
            RewardTerm("distance", distance, -1.0),
            RewardTerm("reached", rewards.while_true(reached), 10.0),
            RewardTerm("ctrl", rewards.squared_action, -parameters.control_cost_weight),
        ),
        terminations=(TerminationTerm("reached", reached),),
        resets=(
            ResetTerm("position", resets.add_uniform_positions(0.1)),
            ResetTerm("target", place_target(parameters.target_range)),
        ),
        log=(LogTerm("reach/speed", speed), LogTerm("reach_steps/close", close)),
        log_families=(
            Family("reach/", Unit.NONE, Owner.ENVIRONMENT),
            Family("reach_steps/", Unit.STEPS, Owner.ENVIRONMENT, counted=True),
        ),
    )


def to_target(state: TermState) -> Tensor:
    """Vector from the point to the target, m, (N, 2)."""
    return state.qpos[:, 2:] - state.qpos[:, :2]


def distance(state: TermState) -> Tensor:
    """Length of that vector, (N,)."""
    return to_target(state).square().sum(1).sqrt()


def reached(state: TermState) -> Tensor:
    """The point is at the target, and slow, (N,) bool."""
    return close(state) & (speed(state) < SPEED_REACHED)


def speed(state: TermState) -> Tensor:
    """Of the point, m/s, (N,)."""
    return state.qvel[:, :2].square().sum(1).sqrt()


def close(state: TermState) -> Tensor:
    """The point is at the target, however fast, (N,) bool."""
    return distance(state) < REACHED


def place_target(half_width: float) -> Callable[[ResetDraft, ManagerRng], None]:
    """A reset term: the target somewhere in the square, from the env's own generator."""

    def apply(draft: ResetDraft, rng: ManagerRng) -> None:
        draft.qpos[:, 2:] = rng.uniform((draft.count, 2), -half_width, half_width)

    return apply
