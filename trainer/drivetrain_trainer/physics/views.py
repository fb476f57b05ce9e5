"""Torch tensors over memory that a simulator owns."""

from __future__ import annotations

import ctypes
import math

import torch
from torch import Tensor

_CTYPES: dict[torch.dtype, type[ctypes.c_double | ctypes.c_int32]] = {
    torch.float64: ctypes.c_double,
    torch.int32: ctypes.c_int32,
}


def tensor_at(address: int, shape: tuple[int, ...], dtype: torch.dtype, owner: object) -> Tensor:
    """A writable C-contiguous tensor over the memory at `address`.

    `torch.from_numpy` would warn of read-only arrays, which a simulator's outputs are.

    Args:
        address: Of the first element.
        shape: Of the tensor.
        dtype: float64 or int32.
        owner: What keeps the memory alive; held for as long as any view of it lives.
    """
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    memory = (_CTYPES[dtype] * count).from_address(address)
    memory.owner = owner  # type: ignore[union-attr]  # ctypes instances take attributes
    return torch.frombuffer(memory, dtype=dtype).view(shape)
