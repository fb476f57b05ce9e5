"""MuJoCo's C batch interface: a few worlds that keep their MjData, and functions run on each.

``cfrc_ext`` and its kin are computed by ``mj_rnePostConstraint`` alone, which neither a step
nor the Python batch calls; the C interface can run it on every world without a Python loop.
A bad argument to these functions ends the process, so everything is checked before a call.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import torch

from drivetrain_trainer.physics.mujoco_warnings import WARNING_NAMES
from drivetrain_trainer.physics.port import PhysicsError
from drivetrain_trainer.physics.views import tensor_at
from drivetrain_trainer.physics.world_batch import check_counts, output_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

_ERROR_SIZE = 1024
_STAGE_NONE = int(mujoco.mjtStage.mjSTAGE_NONE)
_STAGE_ALL = int(mujoco.mjtStage.mjSTAGE_ACC)
_MAX_SUBSTEPS = 1_000_000


class _BatchConfig(ctypes.Structure):
    """``mjBatchConfig``."""

    _fields_ = (("nthread", ctypes.c_int), ("persistent", ctypes.c_bool))


class _Handle:
    """Owns an ``mjBatch*``: freed when the block and every view of its memory are gone."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer
        self._delete: Callable[[int], None] = _library().mjb_deleteBatch

    def __del__(self) -> None:
        self._delete(self.pointer)


class PersistentBlock:
    """A batch whose worlds each keep an MjData, run on the first so many of them.

    Every call names the worlds that it stands for, one a place, for its errors to name.
    """

    def __init__(self, model: mujoco.MjModel, size: int, num_threads: int) -> None:
        check_counts(size, num_threads)
        self._library = _library()
        self._function = ctypes.cast(self._library.mj_rnePostConstraint, ctypes.c_void_p)
        self._model = model
        self.size = size
        message = ctypes.create_string_buffer(_ERROR_SIZE)
        config = _BatchConfig(num_threads, persistent=True)
        pointer = self._library.mjb_makeBatch(
            _address(model), size, ctypes.byref(config), message, _ERROR_SIZE
        )
        if not pointer:
            raise PhysicsError(f"MuJoCo made no batch: {message.value.decode()}")
        self._handle = _Handle(pointer)
        self._places = (ctypes.c_int * size)(*range(size))
        self.rows: Tensor = self._view(
            self._library.mjb_state(pointer), (self._library.mjb_nstate(pointer),), torch.float64
        )
        """(size, states) float64: the worlds' states, live and writable."""
        self.warnings: Tensor = self._view(
            self._library.mjb_warning(pointer), (len(WARNING_NAMES), 2), torch.int32
        )
        """(size, warnings, [info, count]) int32, live and writable."""

    def component(self, kind: mujoco.mjtState) -> slice:
        """Columns of `rows` that hold one component of the state."""
        size = ctypes.c_int()
        first = self._library.mjb_stateComponent(
            self._handle.pointer, int(kind), ctypes.byref(size)
        )
        start = (first - self.rows.data_ptr()) // self.rows.element_size() if first else 0
        return slice(start, start + size.value)

    def output(self, name: str) -> Tensor:
        """(size, ...) a live view of a derived field, filled by the next call."""
        shape, dtype = output_shape(self._model, name)
        size, element = ctypes.c_int(), ctypes.c_int()
        address = self._library.mjb_output(
            self._handle.pointer, name.encode(), ctypes.byref(size), ctypes.byref(element)
        )
        expected = (int(np.prod(shape)), dtype.itemsize)
        if not address or (size.value, element.value) != expected:
            raise PhysicsError(
                f"MuJoCo gives output {name!r} as {size.value} elements of {element.value}"
                f" bytes; expected {expected[0]} of {expected[1]}"
            )
        return self._view(address, shape, dtype)

    def step(self, substeps: int, worlds: Sequence[int]) -> None:
        """Advance worlds, then compute the forces that no step computes.

        The closing forward computes no stage: it copies the outputs out again, which
        applying a function alone does not.

        Raises:
            PhysicsError: MuJoCo raised an error in some world.
        """
        if not 1 <= substeps <= _MAX_SUBSTEPS:
            raise PhysicsError(f"substeps must be from 1 to {_MAX_SUBSTEPS}, got {substeps}")
        count = self._count(worlds)
        library, batch, places = self._library, self._handle.pointer, self._places
        self._check(library.mjb_step(batch, places, count, substeps, _STAGE_NONE), worlds)
        self._check(library.mjb_apply(batch, places, count, self._function, None, 0), worlds)
        self._check(library.mjb_forward(batch, places, count, _STAGE_NONE), worlds)

    def clear(self, worlds: Sequence[int]) -> None:
        """Put worlds back to the model's defaults, whole MjData, computing nothing."""
        count = self._count(worlds)
        reset = self._library.mjb_reset
        self._check(reset(self._handle.pointer, self._places, count, None, _STAGE_NONE), worlds)

    def forward(self, worlds: Sequence[int]) -> None:
        """Compute the outputs of worlds from their states."""
        count = self._count(worlds)
        forward = self._library.mjb_forward
        self._check(forward(self._handle.pointer, self._places, count, _STAGE_ALL), worlds)

    def _view(self, address: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return tensor_at(address, (self.size, *shape), dtype, self._handle)

    def _count(self, worlds: Sequence[int]) -> int:
        count = len(worlds)
        if not 1 <= count <= self.size:
            raise PhysicsError(f"a block of {self.size} worlds was called for {count}")
        return count

    def _check(self, failed: int, worlds: Sequence[int]) -> None:
        if failed == 0:
            return
        status = self._library.mjb_status(self._handle.pointer)
        place = next(place for place in range(len(worlds)) if status[place])
        text = self._library.mjb_error(self._handle.pointer, place).decode()
        raise PhysicsError(f"MuJoCo raised in {failed} worlds; world {worlds[place]}: {text}")


def _address(model: mujoco.MjModel) -> int:
    return int(model._address)  # noqa: SLF001  # the binding's own way to its C struct


@cache
def _library() -> ctypes.CDLL:
    """The MuJoCo that the bindings loaded, its batch functions declared. It drops the GIL."""
    folder = Path(mujoco.__file__).parent
    found = sorted(folder.glob("libmujoco.so*"))
    if not found:
        raise PhysicsError(f"no libmujoco.so in {folder}")
    library = ctypes.CDLL(str(found[0]))
    integer, pointer, ids = ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)
    declarations: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "mjb_makeBatch": (pointer, (pointer, integer, pointer, ctypes.c_char_p, integer)),
        "mjb_deleteBatch": (None, (pointer,)),
        "mjb_nstate": (integer, (pointer,)),
        "mjb_state": (pointer, (pointer,)),
        "mjb_stateComponent": (pointer, (pointer, integer, ids)),
        "mjb_warning": (pointer, (pointer,)),
        "mjb_output": (pointer, (pointer, ctypes.c_char_p, ids, ids)),
        "mjb_step": (integer, (pointer, ids, integer, integer, integer)),
        "mjb_apply": (integer, (pointer, ids, integer, pointer, pointer, integer)),
        "mjb_forward": (integer, (pointer, ids, integer, integer)),
        "mjb_reset": (integer, (pointer, ids, integer, ids, integer)),
        "mjb_status": (ids, (pointer,)),
        "mjb_error": (ctypes.c_char_p, (pointer, integer)),
    }
    for name, (result, arguments) in declarations.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
