"""What the two ways of stepping MuJoCo worlds have in common, and the usual one of them."""

from __future__ import annotations

import difflib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import mujoco
import numpy as np
import torch
from mujoco.batch import DATA_FIELDS, Batch, SimulationError
from torch import Tensor

from drivetrain_trainer.physics.port import PhysicsError
from drivetrain_trainer.physics.views import tensor_at

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE_FIELDS = frozenset(
    {
        "act",
        "ctrl",
        "eq_active",
        "history",
        "mocap_pos",
        "mocap_quat",
        "plastic",
        "plugin_state",
        "qacc_warmstart",
        "qfrc_applied",
        "qpos",
        "qvel",
        "time",
        "userdata",
        "xfrc_applied",
    }
)
"""Rows of a world's state, not outputs."""

POST_CONSTRAINT_FIELDS = frozenset({"cacc", "cfrc_ext", "cfrc_int"})
"""Computed by mj_rnePostConstraint alone, which no step calls."""

UNCOMPUTED_FIELDS = frozenset({"energy", "qfrc_inverse", "subtree_angmom", "subtree_linvel"})
"""A step computes these not at all or for some models' sensors alone."""

OUTPUT_FIELDS = frozenset(DATA_FIELDS) - STATE_FIELDS - UNCOMPUTED_FIELDS
"""Derived fields that terms may read."""

Ids = np.ndarray[Any, np.dtype[np.int32]]


class WorldBatch(Protocol):
    """N MuJoCo worlds behind one call; indices are ascending int32, each once."""

    def state(self, name: str) -> Tensor:
        """(N, size) float64, a live view of one component of the state rows."""
        ...

    def output(self, name: str) -> Tensor:
        """(N, ...) a live view of a derived field, filled by the next call."""
        ...

    @property
    def warning_counts(self) -> Tensor:
        """(N, number of warnings) int32, live and writable."""
        ...

    def step(self, substeps: int) -> None:
        """Advance all worlds.

        Raises:
            PhysicsError: MuJoCo raised an error in some world.
        """
        ...

    def clear(self, ids: Ids) -> None:
        """Put worlds back to the model's defaults, computing nothing."""
        ...

    def forward(self, ids: Ids) -> None:
        """Compute the outputs of worlds from their state."""
        ...


def output_shape(model: mujoco.MjModel, name: str) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape in one world, and dtype, of an output field."""
    value = getattr(mujoco.MjData(model), name)
    array = np.asarray(value)
    dtype = torch.float64 if array.dtype.kind == "f" else torch.int32
    if array.dtype.kind not in "fi" or (array.ndim and array.itemsize != dtype.itemsize):
        raise PhysicsError(f"output {name!r} is {array.dtype}: neither float64 nor int32")
    return array.shape, dtype


def check_outputs(outputs: frozenset[str]) -> None:
    """Refuse names of fields that no step computes.

    Raises:
        PhysicsError: with near matches.
    """
    for name in sorted(outputs - OUTPUT_FIELDS):
        near = difflib.get_close_matches(name, sorted(OUTPUT_FIELDS), n=3, cutoff=0.5)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise PhysicsError(f"output {name!r} is not a field that a step computes{hint}")


def check_counts(num_worlds: int, num_threads: int) -> None:
    """Refuse counts below 1, which MuJoCo takes for all processors or dies of."""
    if num_worlds < 1 or num_threads < 1:
        raise PhysicsError(
            f"a batch needs at least a world and a thread, got {num_worlds} and {num_threads}"
        )


class PooledBatch:
    """Worlds as state rows that a few MjData serve: the fastest, and 4 to 10 KB a world."""

    def __init__(self, model: mujoco.MjModel, num_worlds: int, num_threads: int) -> None:
        check_counts(num_worlds, num_threads)
        self._model = model
        self._num_worlds = num_worlds
        with _physics_errors():
            self._batch = Batch(model, num_worlds, num_threads)
        self.warning_counts: Tensor = torch.from_numpy(self._batch.warning)[:, :, 1]

    def state(self, name: str) -> Tensor:
        """See `WorldBatch.state`."""
        return torch.from_numpy(self._batch.bind(name))

    def output(self, name: str) -> Tensor:
        """See `WorldBatch.output`."""
        shape, dtype = output_shape(self._model, name)
        array = self._batch.bind(name)
        return tensor_at(array.ctypes.data, (self._num_worlds, *shape), dtype, array)

    def step(self, substeps: int) -> None:
        """See `WorldBatch.step`."""
        with _physics_errors():
            self._batch.step(nstep=substeps)

    def clear(self, ids: Ids) -> None:
        """See `WorldBatch.clear`."""
        with _physics_errors():
            self._batch.reset(ids, stage=int(mujoco.mjtStage.mjSTAGE_NONE))

    def forward(self, ids: Ids) -> None:
        """See `WorldBatch.forward`."""
        with _physics_errors():
            self._batch.forward(ids)


@contextmanager
def _physics_errors() -> Iterator[None]:
    try:
        yield
    except (SimulationError, ValueError, mujoco.FatalError) as error:
        raise PhysicsError(str(error)) from error
