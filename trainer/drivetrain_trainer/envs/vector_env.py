"""What a learner's collector needs of an environment, whatever it simulates."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from drivetrain_api.training import Simulator
from drivetrain_trainer.physics.optimizations import untold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from drivetrain_api.artifacts.runtime_manifest import BackendDiagnostics
    from drivetrain_api.metrics import Family
    from drivetrain_trainer.envs.soundness import UnsoundElement
    from drivetrain_trainer.physics.port import RenderState


@dataclass(frozen=True)
class EnvRequest:
    """What a task's factory is asked for, beside the task's own parameters."""

    num_envs: int
    seed: int
    """Of the environments' own generator: an exact int of 0 to 2**32 - 1."""
    num_threads: int = 1
    """With which physics is stepped; results do not depend on it."""
    simulator: Simulator = Simulator.MUJOCO
    device: str = "cpu"
    """Torch device of a native backend's worlds; those of a host bridge are in host memory."""


@dataclass(frozen=True)
class StepOutcome:
    """One step of N environments: views of buffers that the env owns, valid until the next."""

    observation: Tensor
    """(N, o) float32, after auto-reset: what the policy sees next."""
    next_observation: Tensor
    """(N, o) float32: the terminal observation on an episode's last row, else `observation`."""
    reward: Tensor
    """(N,) float32."""
    terminated: Tensor
    """(N,) bool: the episode reached a terminal state, from which no reward follows."""
    truncated: Tensor
    """(N,) bool: the episode ran out of time in a state that is not terminal, so that its
    value must be bootstrapped; never set together with `terminated`."""
    invalid: Tensor
    """(N,) bool: the world diverged in this step and was reset. The row must not be trained
    on and the episode's return is void: reward 0, neither terminated nor truncated, and
    `next_observation` equals `observation`."""
    unsound: tuple[UnsoundElement, ...] = ()
    """What is wrong with invalid rows, the first few; an environment need not tell."""


@dataclass(frozen=True)
class StepTimings:
    """Wall milliseconds of the latest step's phases, which follow each other."""

    action_validate: float = 0.0
    apply_action: float = 0.0
    backend: float = 0.0
    """Physics: the launch, and of an asynchronous backend the wait for its device, although
    that comes to light later, when the host first reads of the step."""
    update_state: float = 0.0
    """Observations, rewards and terminations."""
    reset_done: float = 0.0
    began_ns: int = 0
    """When the first one began, of ``time.perf_counter_ns()``; 0 where that is not known."""

    @property
    def action_backend(self) -> float:
        """From the action's application to the end of physics."""
        return self.apply_action + self.backend


class ManagerKind(StrEnum):
    """The concern that a term belongs to."""

    ACTION = "action"
    OBSERVATION = "observation"
    REWARD = "reward"
    TERMINATION = "termination"
    EVENT = "event"


@dataclass(frozen=True)
class ActiveTerm:
    """A row of the table of an environment's terms, for the record of a run."""

    manager: ManagerKind
    name: str
    size: int | None = None
    """Columns of the action or observation."""
    weight: float | None = None
    """Factor of the reward."""


class VectorEnv(Protocol):
    """N environments of one task that reset themselves.

    A rank may divide its environments into several of these and step them in turn, handing
    the state of the random numbers from one to the next. The numbers are then those of a
    single one, if each draws world after world, in the worlds' order.

    Not thread-safe, not picklable, and not to be used after a fork: made in the process that
    steps it.
    """

    @property
    def num_envs(self) -> int:
        """N."""
        ...

    @property
    def observation_dim(self) -> int:
        """Columns of an observation, o."""
        ...

    @property
    def action_dim(self) -> int:
        """Columns of an action, a."""
        ...

    @property
    def episode_length(self) -> int:
        """Steps after which an episode is truncated."""
        ...

    @property
    def step_seconds(self) -> float:
        """Simulated seconds of one step."""
        ...

    @property
    def action_low(self) -> Tensor:
        """(a,) float32, raw units: what -1 maps to."""
        ...

    @property
    def action_high(self) -> Tensor:
        """(a,) float32, raw units: what 1 maps to."""
        ...

    @property
    def log(self) -> Mapping[str, Tensor]:
        """0-dim means and counts of the latest step; other frameworks' ``info["log"]``.

        Entries with a slash are metrics: they are forwarded under their name, which is of a
        family (``reward/<term>``, ``Episode_Termination/<term>``, or one of `log_families`).
        Entries without one stay here.
        """
        ...

    @property
    def log_tags(self) -> tuple[str, ...]:
        """Every tag with a slash that `log` may hold."""
        ...

    @property
    def log_families(self) -> tuple[Family, ...]:
        """Families of the environment's own, beside those that every run has."""
        ...

    @property
    def timings(self) -> StepTimings:
        """Of the latest step."""
        ...

    @property
    def instability(self) -> Mapping[str, int]:
        """Worlds that diverged or warned since the start, by reason; every reason has a key."""
        ...

    @property
    def terms(self) -> tuple[ActiveTerm, ...]:
        """The terms that make the environment; empty where it is not made of terms."""
        ...

    def reset(self) -> Tensor:
        """Start a new episode everywhere; (N, o) float32."""
        ...

    def step(self, action: Tensor) -> StepOutcome:
        """Advance every environment, and reset those whose episode is over.

        Args:
            action: (N, a) float32; [-1, 1] maps affinely onto [low, high]. Not clamped.
        """
        ...

    def rng_state(self) -> Tensor:
        """CPU uint8 state of the generator that all the env's random numbers come from."""
        ...

    def set_rng_state(self, state: Tensor) -> None:
        """Go on with the random numbers from where `rng_state` was taken."""
        ...

    def get_backend_runtime_diagnostics(self) -> BackendDiagnostics:
        """The physics backend's optimisations: asked for, in use, and if not, why."""
        ...

    def render_state(self) -> RenderState | None:
        """The first environment, to be drawn; None where there is nothing to draw."""
        ...

    def close(self) -> None:
        """Let go of everything; a second close does nothing."""
        ...


def diagnostics_of(env: VectorEnv) -> BackendDiagnostics:
    """`VectorEnv.get_backend_runtime_diagnostics`, of environments that lack it too."""
    tell = getattr(env, "get_backend_runtime_diagnostics", None)
    if tell is None:
        return untold(f"{type(env).__name__} does not tell of its backend")
    told: BackendDiagnostics = tell()
    return told
