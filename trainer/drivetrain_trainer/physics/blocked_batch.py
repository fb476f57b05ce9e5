"""Worlds whose outputs need ``mj_rnePostConstraint``, served by a few that keep their MjData."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import mujoco
import numpy as np
import torch

from drivetrain_trainer.physics.persistent_block import PersistentBlock
from drivetrain_trainer.physics.port import PhysicsError
from drivetrain_trainer.physics.world_batch import check_counts

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.physics.world_batch import Ids

_SERIAL_BLOCK = 8
_PARALLEL_BLOCK = 32
_STATE_KINDS = {
    "qpos": mujoco.mjtState.mjSTATE_QPOS,
    "qvel": mujoco.mjtState.mjSTATE_QVEL,
    "ctrl": mujoco.mjtState.mjSTATE_CTRL,
    "qacc_warmstart": mujoco.mjtState.mjSTATE_WARMSTART,
}


class _Mirror:
    """Memory of all worlds, and that of the block in which they take their turns.

    Copies whole runs of worlds, as plain memory: a tensor's call costs ten times as much.
    """

    def __init__(self, place: Tensor, num_worlds: int) -> None:
        self.place = place
        """(block, ...)."""
        self.world = torch.zeros((num_worlds, *place.shape[1:]), dtype=place.dtype)
        """(N, ...), the same of every world."""
        self._from, self._to = place.data_ptr(), self.world.data_ptr()
        self._row = place[0].numel() * place.element_size()

    def load(self, first: int, count: int) -> None:
        """Bring `count` worlds from `first` on into the block."""
        ctypes.memmove(self._from, self._to + first * self._row, count * self._row)

    def save(self, first: int, count: int) -> None:
        """Take them back."""
        ctypes.memmove(self._to + first * self._row, self._from, count * self._row)


class BlockedBatch:
    """N worlds as state rows of our own, taken block by block through a `PersistentBlock`.

    A world that keeps its MjData costs 50 KB that each step must touch. For hundreds of
    worlds that is more than a core's cache holds, and costs 4 to 6 % of the step. A state row
    holds all that the next step depends on, so a block small enough for the cache can serve
    every world in turn: the results are bit-equal, and memory does not grow with N. With
    several threads a block is larger, or they would wait at the end of each.
    """

    def __init__(self, model: mujoco.MjModel, num_worlds: int, num_threads: int) -> None:
        check_counts(num_worlds, num_threads)
        if model.opt.enableflags & int(mujoco.mjtEnableBit.mjENBL_SLEEP):
            raise PhysicsError("outputs of contact forces do not go with a model that sleeps")
        size = _SERIAL_BLOCK if num_threads == 1 else _PARALLEL_BLOCK * num_threads
        self._num_worlds = num_worlds
        self._block = PersistentBlock(model, min(size, num_worlds), num_threads)
        self._block.clear(range(self._block.size))
        self._default = self._block.rows[0].clone()
        self._rows = _Mirror(self._block.rows, num_worlds)
        self._rows.world.copy_(self._default.expand_as(self._rows.world))
        self._warnings = _Mirror(self._block.warnings, num_worlds)
        self._outputs: dict[str, _Mirror] = {}
        self.warning_counts: Tensor = self._warnings.world[:, :, 1]

    def state(self, name: str) -> Tensor:
        """See `WorldBatch.state`."""
        return self._rows.world[:, self._block.component(_STATE_KINDS[name])]

    def output(self, name: str) -> Tensor:
        """See `WorldBatch.output`."""
        if name not in self._outputs:
            self._outputs[name] = _Mirror(self._block.output(name), self._num_worlds)
        return self._outputs[name].world

    def step(self, substeps: int) -> None:
        """See `WorldBatch.step`."""
        size = self._block.size
        mirrors = (self._rows, self._warnings, *self._outputs.values())
        for first in range(0, self._num_worlds, size):
            worlds = range(first, min(first + size, self._num_worlds))
            self._rows.load(first, len(worlds))
            self._warnings.load(first, len(worlds))
            self._block.step(substeps, worlds)
            for mirror in mirrors:
                mirror.save(first, len(worlds))

    def clear(self, ids: Ids) -> None:
        """See `WorldBatch.clear`."""
        worlds = self._checked(ids)
        self._rows.world[worlds] = self._default
        self.warning_counts[worlds] = 0

    def forward(self, ids: Ids) -> None:
        """See `WorldBatch.forward`; what no stage computes is zero, as after a reset."""
        every = self._checked(ids)
        for first in range(0, len(every), self._block.size):
            worlds = every[first : first + self._block.size]
            names = worlds.tolist()
            self._block.clear(names)
            self._block.rows[: len(names)] = self._rows.world[worlds]
            self._block.forward(names)
            self._rows.world[worlds] = self._block.rows[: len(names)]
            for mirror in self._outputs.values():
                mirror.world[worlds] = mirror.place[: len(names)]

    def _checked(self, ids: Ids) -> Tensor:
        if ids.dtype != np.int32 or ids.ndim != 1:
            raise PhysicsError(f"ids must be an int32 vector, got {ids.dtype} {ids.shape}")
        ascending = bool((ids[1:] > ids[:-1]).all())
        if not ascending or (ids.size and not 0 <= ids[0] <= ids[-1] < self._num_worlds):
            raise PhysicsError(f"ids must ascend within 0..{self._num_worlds - 1}, got {ids}")
        return torch.from_numpy(ids.astype(np.int64))
