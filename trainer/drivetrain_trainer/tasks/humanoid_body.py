"""What Humanoid-v5 and HumanoidStandup-v5 share: one body, one observation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.envs.definition import ObservationTerm, Quantity, ResetTerm
from drivetrain_trainer.envs.terms import observations, resets

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.envs.state import TermState

SUBSTEPS = 5
OUTPUTS = frozenset({"cinert", "cvel", "qfrc_actuator", "cfrc_ext"})
_ROOT_VELOCITIES = 6

OBSERVATIONS = (
    ObservationTerm("position", observations.positions(2)),
    ObservationTerm("velocity", observations.velocities()),
    ObservationTerm("body_inertia", observations.output("cinert", 1)),
    ObservationTerm("body_velocity", observations.output("cvel", 1)),
    ObservationTerm("actuator_force", observations.output("qfrc_actuator", _ROOT_VELOCITIES)),
    ObservationTerm("contact_force", observations.output("cfrc_ext", 1)),
)


def reset_terms(noise_scale: float) -> tuple[ResetTerm, ...]:
    """Uniform noise on every position and velocity."""
    return (
        ResetTerm("position", resets.add_uniform_positions(noise_scale)),
        ResetTerm("velocity", resets.add_uniform_velocities(noise_scale)),
    )


def contact_cost(weight: float, most: float) -> Quantity:
    """`weight` times the squared contact forces of all bodies, at most `most`."""

    def compute(state: TermState) -> Tensor:
        return (state.output("cfrc_ext").square().sum((1, 2)) * weight).clamp(max=most)

    return compute
