"""What a physics backend tells of its own optimisations, for the runtime manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.artifacts.runtime_manifest import BackendDiagnostics, OptimizationState

if TYPE_CHECKING:
    from drivetrain_trainer.physics.port import Physics


def optimization(*, refused: str | None, requested: bool = True) -> OptimizationState:
    """One optimisation: in use, unless a reason is given why it is not."""
    return OptimizationState(requested=requested, enabled=refused is None, disable_reason=refused)


def backend_diagnostics(physics: Physics) -> BackendDiagnostics:
    """A backend's snapshot; one without `runtime_diagnostics` says that it has none."""
    tell = getattr(physics, "runtime_diagnostics", None)
    if tell is None:
        return untold(f"{type(physics).__name__} has no optimisations to tell of")
    told: BackendDiagnostics = tell()
    return told


def untold(reason: str) -> BackendDiagnostics:
    """The snapshot of what tells nothing."""
    return BackendDiagnostics(available=False, unavailable_reason=reason)
