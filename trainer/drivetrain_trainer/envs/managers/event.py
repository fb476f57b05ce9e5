"""Events: what happens to worlds when their episode starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.envs.definition import ResetDraft, ResetTerm
from drivetrain_trainer.envs.soundness import require_sound
from drivetrain_trainer.envs.vector_env import ActiveTerm, ManagerKind

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.envs.rng import ManagerRng
    from drivetrain_trainer.physics.port import Physics


class EventManager:
    """Resets worlds to the reference state as its terms change it."""

    def __init__(self, terms: tuple[ResetTerm, ...], physics: Physics, rng: ManagerRng) -> None:
        self._terms = terms
        self._physics = physics
        self._rng = rng

    def reset(self, ids: Tensor) -> None:
        """Put worlds (n,) int64, ascending, into fresh states.

        Raises:
            NonFiniteResetError: the terms gave a state that the simulator would not take, and
                would replace by the reference state in silence.
        """
        model = self._physics.model
        draft = ResetDraft(
            model,
            qpos=model.initial_qpos.repeat(len(ids), 1),
            qvel=model.initial_qvel.repeat(len(ids), 1),
        )
        for term in self._terms:
            term.apply(draft, self._rng)
        require_sound(ids, draft.qpos, "positions")
        require_sound(ids, draft.qvel, "velocities")
        self._physics.reset(ids, draft.qpos, draft.qvel)

    def table(self) -> tuple[ActiveTerm, ...]:
        """The terms."""
        return tuple(ActiveTerm(ManagerKind.EVENT, term.name) for term in self._terms)
