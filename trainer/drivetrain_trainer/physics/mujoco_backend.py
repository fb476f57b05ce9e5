"""The `mujoco` backend: CPU worlds in float64, stepped by a pool of threads."""

from __future__ import annotations

import os
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from drivetrain_trainer.physics.blocked_batch import BlockedBatch
from drivetrain_trainer.physics.capabilities import MUJOCO
from drivetrain_trainer.physics.mjcf import load_model, model_facts
from drivetrain_trainer.physics.mujoco_warnings import (
    DIVERGED,
    WARNING_NAMES,
    redirect_warnings,
)
from drivetrain_trainer.physics.port import (
    Divergence,
    PhysicsError,
    RenderState,
    SimulationSetup,
)
from drivetrain_trainer.physics.world_batch import (
    POST_CONSTRAINT_FIELDS,
    PooledBatch,
    WorldBatch,
    check_outputs,
)


class MujocoPhysics:
    """`Physics` over MuJoCo's batches; state rows equal those of ``mj_step`` bit for bit.

    It belongs to the process that made it: its threads do not survive a fork, and it cannot
    be pickled. Make it in the process that steps it (started by spawn).
    """

    warning_names = WARNING_NAMES
    capabilities = MUJOCO

    def __init__(self, setup: SimulationSetup) -> None:
        """Load the model and make its worlds, each in the model's default state.

        Raises:
            PhysicsError: the model does not load, an output is unknown, or MuJoCo refuses.
        """
        if setup.device != "cpu":
            raise PhysicsError(f"mujoco's worlds live in host memory, not on {setup.device!r}")
        redirect_warnings()
        check_outputs(setup.outputs)
        self.num_worlds = setup.num_worlds
        self._mj_model = load_model(setup.model)
        self.model = model_facts(self._mj_model)
        kind = BlockedBatch if setup.outputs & POST_CONSTRAINT_FIELDS else PooledBatch
        self._batch: WorldBatch | None = kind(self._mj_model, setup.num_worlds, setup.num_threads)
        self.qpos, self.qvel, self.ctrl = map(self._batch.state, ("qpos", "qvel", "ctrl"))
        self._outputs = {name: self._batch.output(name) for name in sorted(setup.outputs)}
        self._warnings = self._batch.warning_counts
        self._diverged = torch.tensor(DIVERGED)
        self._pid = os.getpid()

    def output(self, name: str) -> Tensor:
        """See `Physics.output`."""
        if name not in self._outputs:
            raise PhysicsError(
                f"output {name!r} was not asked for; the set-up has: {', '.join(self._outputs)}"
            )
        return self._outputs[name]

    def step(self, substeps: int) -> Divergence | None:
        """See `Physics.step`.

        MuJoCo resets an unstable world within the step, without a status or an exception:
        only its warning counters tell. They go back to zero with that reset, so a second
        one would look like no change; hence they are cleared once read.
        """
        self.world_batch.step(substeps)
        if not self._warnings.any():
            return None
        raised = self._warnings > 0
        self._warnings.zero_()
        return Divergence.of(raised, WARNING_NAMES, self._diverged)

    def reset(self, ids: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """See `Physics.reset`. Clears the warm start and whatever a world's warnings were."""
        batch = self.world_batch
        worlds = ids.numpy().astype(np.int32)
        batch.clear(worlds)
        self.qpos[ids] = qpos
        self.qvel[ids] = qvel
        batch.forward(worlds)

    def render_state(self, world: int) -> RenderState:
        """See `Physics.render_state`."""
        state = self.world_batch.state
        return RenderState(
            self._mj_model, state("qpos")[world].clone(), state("qvel")[world].clone()
        )

    def close(self) -> None:
        """See `Physics.close`. Memory goes once no view of it is left."""
        self._batch = None

    @property
    def world_batch(self) -> WorldBatch:
        """The worlds themselves.

        Raises:
            PhysicsError: closed, or used in another process than the one that made them.
        """
        if self._batch is None:
            raise PhysicsError("the simulation is closed")
        if os.getpid() != self._pid:
            raise PhysicsError(
                f"made in process {self._pid}, used in {os.getpid()}: its threads do not survive"
                " a fork; make it in the process that steps it"
            )
        return self._batch

    def __reduce__(self) -> NoReturn:
        raise TypeError("a simulation cannot be pickled; make it in the process that steps it")
