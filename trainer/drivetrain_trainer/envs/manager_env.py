"""The manager-based vector environment."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drivetrain_trainer.envs.checks import check_counts_and_names
from drivetrain_trainer.envs.errors import EnvClosedError, EnvError
from drivetrain_trainer.envs.managers.action import ActionManager
from drivetrain_trainer.envs.managers.event import EventManager
from drivetrain_trainer.envs.managers.log import LogManager
from drivetrain_trainer.envs.managers.observation import ObservationManager
from drivetrain_trainer.envs.managers.reward import RewardManager
from drivetrain_trainer.envs.managers.termination import TerminationManager
from drivetrain_trainer.envs.rng import ManagerRng
from drivetrain_trainer.envs.soundness import (
    NAMED_ELEMENTS,
    NONFINITE,
    UnsoundElement,
    all_sound,
    require_sound,
    sound_rows,
    unsound_positions,
)
from drivetrain_trainer.envs.state import TermState
from drivetrain_trainer.envs.vector_env import ActiveTerm, EnvRequest, StepOutcome, StepTimings
from drivetrain_trainer.physics.factory import make_physics
from drivetrain_trainer.physics.optimizations import backend_diagnostics
from drivetrain_trainer.physics.port import Divergence, Physics, RenderState, SimulationSetup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.artifacts.runtime_manifest import BackendDiagnostics
    from drivetrain_trainer.envs.definition import EnvDefinition
    from drivetrain_trainer.physics.port import PendingStep


class ManagerEnv:
    """`VectorEnv` made of an `EnvDefinition` over a physics backend.

    Random numbers come from one generator and are drawn in world order on the calling
    thread, so that a seed gives one stream whatever the number of threads.
    """

    def __init__(
        self, definition: EnvDefinition, request: EnvRequest, *, physics: Physics | None = None
    ) -> None:
        """Make the worlds; they stand in the model's default state until `reset`.

        Args:
            definition: Model and terms.
            request: How many, with which seed, on how many threads.
            physics: Worlds to use in place of those that the request would make.

        Raises:
            EnvError: a count that is no positive int, two terms of one name, a bad term.
            PhysicsError: the simulator refuses the model or an output.
        """
        check_counts_and_names(definition, request)
        self._physics: Physics | None = physics or make_physics(
            request.simulator,
            SimulationSetup(
                model=definition.model,
                num_worlds=request.num_envs,
                num_threads=request.num_threads,
                outputs=definition.outputs,
                device=request.device,
            ),
        )
        worlds = self._physics
        self._rng = ManagerRng(request.seed, worlds.qpos.device)
        self._substeps = definition.substeps
        self._state = TermState(worlds, definition.substeps)
        self._state.track(definition.tracked)
        self._actions = ActionManager(self._state)
        self._observations = ObservationManager(definition.observations, self._state)
        self._rewards = RewardManager(definition.rewards, self._state)
        self._terminations = TerminationManager(
            definition.terminations, self._state, definition.episode_length
        )
        self._own_log = LogManager(definition.log, definition.log_families, self._state)
        self._events = EventManager(definition.resets, worlds, self._rng)
        self.num_envs = request.num_envs
        self.observation_dim = self._observations.size
        self.action_dim = self._actions.size
        self.episode_length = definition.episode_length
        self.step_seconds = self._state.step_seconds
        self.action_low, self.action_high = self._actions.low, self._actions.high
        self.timings = StepTimings()
        self._waited_ns = 0
        self.log_tags = (*self._rewards.tags, *self._terminations.tags, *self._own_log.tags)
        self.log_families = definition.log_families
        self._instability = Counter(dict.fromkeys((*worlds.warning_names, NONFINITE), 0))
        self._log: Mapping[str, Tensor] | None = {}
        self._episodes_ended = False
        self._fresh = self._observations.make_buffer()
        self._fresh_columns = self._observations.columns(self._fresh)
        self._unsound: tuple[UnsoundElement, ...] = ()
        self._outcome = self._make_buffers()
        self._next_columns = self._observations.columns(self._outcome.next_observation)
        self._started = False

    @property
    def terms(self) -> tuple[ActiveTerm, ...]:
        """See `VectorEnv.terms`."""
        managers = (
            self._actions,
            self._observations,
            self._rewards,
            self._terminations,
            self._events,
        )
        return tuple(row for manager in managers for row in manager.table())

    @property
    def instability(self) -> Mapping[str, int]:
        """See `VectorEnv.instability`."""
        return self._instability

    @property
    def log(self) -> Mapping[str, Tensor]:
        """See `VectorEnv.log`; computed when it is asked for, and once for each step."""
        if self._log is None:
            ended = self._terminations.log() if self._episodes_ended else {}
            self._log = {**self._rewards.log(), **ended, **self._own_log.log()}
        return self._log

    def reset(self) -> Tensor:
        """See `VectorEnv.reset`."""
        self._open()
        self._started = True
        self._log = {}
        self._outcome.observation.copy_(
            self._restart(torch.arange(self.num_envs, device=self._state.device))
        )
        return self._outcome.observation

    def step(self, action: Tensor) -> StepOutcome:
        """See `VectorEnv.step`."""
        worlds = self._open()
        if not self._started:
            raise EnvError("reset() before the first step")
        began = perf_counter_ns()
        self._actions.validate(action)
        validated = perf_counter_ns()
        self._actions.apply(action)
        applied = perf_counter_ns()
        self._log = None
        self._state.remember()
        physics = worlds.step(self._substeps)
        stepped = perf_counter_ns()
        self._update(physics)
        updated = perf_counter_ns()
        self._reset_done()
        ended = perf_counter_ns()
        self.timings = StepTimings(
            action_validate=(validated - began) * 1e-6,
            apply_action=(applied - validated) * 1e-6,
            backend=(stepped - applied + self._waited_ns) * 1e-6,
            update_state=(updated - stepped - self._waited_ns) * 1e-6,
            reset_done=(ended - updated) * 1e-6,
            began_ns=began,
        )
        return replace(self._outcome, unsound=self._unsound) if self._unsound else self._outcome

    def rng_state(self) -> Tensor:
        """See `VectorEnv.rng_state`."""
        return self._rng.get_state()

    def set_rng_state(self, state: Tensor) -> None:
        """See `VectorEnv.set_rng_state`."""
        self._rng.set_state(state)

    def get_backend_runtime_diagnostics(self) -> BackendDiagnostics:
        """See `VectorEnv.get_backend_runtime_diagnostics`."""
        return backend_diagnostics(self._open())

    def render_state(self) -> RenderState:
        """See `VectorEnv.render_state`."""
        return self._open().render_state(0)

    def close(self) -> None:
        """See `VectorEnv.close`."""
        if self._physics is not None:
            self._physics.close()
            self._physics = None

    def _open(self) -> Physics:
        if self._physics is None:
            raise EnvClosedError("the environment is closed")
        return self._physics

    def _make_buffers(self) -> StepOutcome:
        return StepOutcome(
            observation=self._observations.make_buffer(),
            next_observation=self._observations.make_buffer(),
            reward=torch.full((self.num_envs,), torch.nan, device=self._state.device),
            terminated=self._terminations.terminated,
            truncated=self._terminations.truncated,
            invalid=torch.zeros(self.num_envs, dtype=torch.bool, device=self._state.device),
        )

    def _update(self, step: Divergence | PendingStep | None) -> None:
        """Fill the outcome from the worlds as the step left them."""
        outcome = self._outcome
        self._unsound = ()
        self._observations.compute_into(self._next_columns)
        self._rewards.compute_into(outcome.reward)
        self._terminations.compute()
        self._own_log.compute()
        divergence = self._drain(step)
        sound = all_sound(outcome.next_observation) and all_sound(outcome.reward)
        if divergence is not None or not sound:
            self._find_invalid(divergence)
        else:
            outcome.invalid.zero_()

    def _drain(self, step: Divergence | PendingStep | None) -> Divergence | None:
        """Wait for physics that still runs, right before the host first reads of the step.

        Whatever is read first would wait for it; the time is physics' own (`StepTimings`).
        """
        self._waited_ns = 0
        if step is None or isinstance(step, Divergence):
            return step
        began = perf_counter_ns()
        divergence = step.wait()
        self._waited_ns = perf_counter_ns() - began
        return divergence

    def _find_invalid(self, divergence: Divergence | None) -> None:
        """Mark worlds whose step means nothing, and take them out of all else."""
        outcome = self._outcome
        sound = sound_rows(outcome.next_observation) & sound_rows(outcome.reward[:, None])
        torch.logical_not(sound, out=outcome.invalid)
        unreported = outcome.invalid
        if divergence is not None:
            self._instability.update(divergence.counts)
            unreported = unreported & ~divergence.worlds
        self._instability[NONFINITE] += int(unreported.sum())
        self._unsound = self._name(divergence, unreported)
        if divergence is not None:
            outcome.invalid.logical_or_(divergence.worlds)
        self._rewards.void(outcome.invalid)
        self._terminations.void(outcome.invalid)
        self._own_log.void(outcome.invalid)
        outcome.reward.masked_fill_(outcome.invalid, 0.0)

    def _name(
        self, divergence: Divergence | None, unreported: Tensor
    ) -> tuple[UnsoundElement, ...]:
        """What is wrong with worlds: of those that the simulator reported, its own words."""
        told = divergence.first if divergence is not None else {}
        found = [UnsoundElement(world, f"simulator warning {name}") for name, world in told.items()]
        ids = unreported.nonzero().squeeze(1)
        observed = self._outcome.next_observation[ids]
        found += [
            UnsoundElement(
                int(ids[row]), self._observations.place(column), float(observed[row, column])
            )
            for row, column in unsound_positions(observed)
        ]
        paid = unreported & ~sound_rows(self._outcome.reward[:, None])
        if paid.any():
            found += self._rewards.unsound(paid)
        return tuple(found[:NAMED_ELEMENTS])

    def _reset_done(self) -> None:
        """Start new episodes where one is over, keeping the terminal observations."""
        outcome = self._outcome
        outcome.observation.copy_(outcome.next_observation)
        over = outcome.terminated | outcome.truncated | outcome.invalid
        ids = over.nonzero().squeeze(1)
        self._episodes_ended = False
        if not len(ids):
            return
        fresh = self._restart(ids)
        outcome.observation[ids] = fresh
        void = outcome.invalid[ids]
        outcome.next_observation[ids[void]] = fresh[void]
        self._episodes_ended = not void.all()

    def _restart(self, ids: Tensor) -> Tensor:
        """Reset worlds (n,) int64 and give their observations, (n, o) float32.

        Raises:
            NonFiniteResetError: the reset terms gave a state, or it an observation, that is
                not finite.
        """
        self._events.reset(ids)
        self._terminations.restart(ids)
        self._observations.compute_into(self._fresh_columns)
        fresh = self._fresh[ids]
        require_sound(ids, fresh, "observations", self._observations.place)
        return fresh
