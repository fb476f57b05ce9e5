"""A run's `podTemplate` laid over ours, by the rules of a strategic merge.

Mappings merge key by key, and null takes a key away. The lists of `LIST_KEYS` merge by
their keys; any other list is replaced as a whole. What the overlay may not say is refused
before (`drivetrain_operator.manifests.overlay_rules`), never silently dropped here.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "tolerations": ("key", "effect"),
}
"""Merge keys of the lists that both sides may have."""
_MERGED_ITEMS: Final = frozenset({"containers", "initContainers"})
"""Lists whose items merge; elsewhere an item replaces the one of its key."""


def overlaid(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """A new template: `overlay` over `base`; neither is changed, nothing is shared."""
    merged = copy.deepcopy(dict(base))
    for key, value in overlay.items():
        below = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = overlaid(below if isinstance(below, Mapping) else {}, value)
        elif _has_keys(key, value) and _has_keys(key, below or []):
            merged[key] = _merged_list(key, below or [], value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def _has_keys(name: str, value: object) -> bool:
    """Whether a list merges by key: anywhere else its name may mean something else."""
    return (
        name in LIST_KEYS
        and isinstance(value, list)
        and all(
            isinstance(item, Mapping)
            and all(isinstance(part, str | None) for part in _identity(name, item))
            for item in value
        )
    )


def _merged_list(name: str, base: Sequence[Any], overlay: Sequence[Any]) -> list[Any]:
    """Items of `base` in their order, those of new keys after them."""
    merged = {_identity(name, item): item for item in base}
    for item in overlay:
        identity = _identity(name, item)
        below = merged.get(identity, {})
        merged[identity] = overlaid(below if _merges(name, below, item) else {}, item)
    return list(merged.values())


def _merges(name: str, below: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    """Whether an item merges; a volume does so only with one of the same source."""
    return name in _MERGED_ITEMS or (name == "volumes" and below.keys() == item.keys())


def _identity(name: str, item: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(item.get(key) for key in LIST_KEYS[name])
