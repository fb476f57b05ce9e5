"""State as plain tensors, numbers, text and containers: what may go into a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch

Plain: TypeAlias = (
    "torch.Tensor | int | float | bool | str | list[Plain] | tuple[Plain, ...]"
    " | dict[str | int, Plain] | None"
)


def to_plain(value: object, path: str = "state") -> Plain:
    """`value` in types that load without running code.

    Tensors are detached, brought to the CPU, and cut loose from larger storages that they
    are views of (others share their memory); subclasses of dict, int, float and str become
    those.

    Args:
        value: Nested mappings, lists and tuples of tensors and scalars.
        path: Where it stands, for the message.

    Raises:
        TypeError: naming the place and the type of what cannot be stored.
    """
    if isinstance(value, torch.Tensor):
        return _to_cpu(value)
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Mapping):
        return {_key(key, path): to_plain(item, f"{path}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list):
        return [to_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, tuple):
        return tuple(to_plain(item, f"{path}[{index}]") for index, item in enumerate(value))
    raise TypeError(f"{path}: a checkpoint cannot hold a {type(value).__qualname__}")


def _to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    copied = tensor.detach().to("cpu")
    if copied.untyped_storage().nbytes() > copied.numel() * copied.element_size():
        copied = copied.clone(memory_format=torch.contiguous_format)
    return copied if type(copied) is torch.Tensor else copied.as_subclass(torch.Tensor)


def _key(key: object, path: str) -> str | int:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise TypeError(f"{path}: keys are text or integers; got {key!r}")
    return str(key) if isinstance(key, str) else int(key)
