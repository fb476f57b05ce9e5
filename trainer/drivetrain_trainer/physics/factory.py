"""Which class serves which simulator name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.training import Simulator
from drivetrain_trainer.physics.capabilities import capabilities_of

if TYPE_CHECKING:
    from drivetrain_trainer.physics.port import Physics, SimulationSetup


def make_physics(simulator: Simulator, setup: SimulationSetup) -> Physics:
    """Worlds of a simulator.

    Raises:
        PhysicsError: the simulator is not part of this release, or refuses the set-up.
    """
    capabilities_of(simulator)
    if simulator is Simulator.MJWARP:
        # Loaded where it is used: it takes seconds, and memory that no other run needs.
        from drivetrain_trainer.physics.mjwarp_backend import MjwarpPhysics  # noqa: PLC0415

        return MjwarpPhysics(setup)
    from drivetrain_trainer.physics.mujoco_backend import MujocoPhysics  # noqa: PLC0415 - likewise

    return MujocoPhysics(setup)
