"""What each simulator declares, known without loading it."""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivetrain_api.training import Simulator
from drivetrain_trainer.physics.port import BackendCapabilities, BackendKind, PhysicsError

if TYPE_CHECKING:
    from collections.abc import Mapping

MUJOCO: Final = BackendCapabilities(
    kind=BackendKind.HOST_BRIDGE,
    torch_devices=frozenset({"cpu", "cuda"}),
    carriers=frozenset({"cpu", "cuda"}),
    packed_transfer=True,
)

MJWARP: Final = BackendCapabilities(
    kind=BackendKind.NATIVE, torch_devices=frozenset({"cpu", "cuda"})
)

CAPABILITIES: Final[Mapping[Simulator, BackendCapabilities]] = MappingProxyType(
    {Simulator.MUJOCO: MUJOCO, Simulator.MJWARP: MJWARP}
)
"""Of the simulators of this release."""


def capabilities_of(simulator: Simulator, backend: str | None = None) -> BackendCapabilities:
    """What the backend of a task's environments offers.

    Args:
        simulator: The manifest's ``sim``.
        backend: `TaskSpec.backend`: ``module:attribute`` of the capabilities (or of what has
            them as ``capabilities``) of a backend that the task brings; None for the
            simulator's own.

    Raises:
        PhysicsError: the simulator is not part of this release, or `backend` is not one.
    """
    if backend is None:
        found = CAPABILITIES.get(simulator)
        if found is None:
            offered = ", ".join(repr(name.value) for name in CAPABILITIES)
            raise PhysicsError(f"simulator {simulator.value!r} is not available; use {offered}")
        return found
    module, _, attribute = backend.partition(":")
    try:
        named = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise PhysicsError(f"cannot load the backend {backend!r}: {error}") from error
    declared = getattr(named, "capabilities", named)
    if not isinstance(declared, BackendCapabilities):
        raise PhysicsError(
            f"{backend!r} is a {type(named).__name__}, which declares no BackendCapabilities"
        )
    return declared
