"""Which class serves which simulator name."""

from __future__ import annotations

from drivetrain_api.training import Simulator
from drivetrain_trainer.physics.mujoco_backend import MujocoPhysics
from drivetrain_trainer.physics.port import Physics, PhysicsError, SimulationSetup


def make_physics(simulator: Simulator, setup: SimulationSetup) -> Physics:
    """Worlds of a simulator.

    Raises:
        PhysicsError: the simulator is not part of this release, or refuses the set-up.
    """
    if simulator is not Simulator.MUJOCO:
        raise PhysicsError(f"simulator {simulator.value!r} is not available; use 'mujoco'")
    return MujocoPhysics(setup)
