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
    """Resets worlds to the reference state as its terms change it.

    World after world is drawn, so that worlds get the same numbers whether they are reset at
    once or some of them later: one stream serves them in their order, however an environment
    is divided into parts that are stepped one after the other.
    """

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
        for world in range(len(ids)):
            qpos, qvel = draft.qpos[world : world + 1], draft.qvel[world : world + 1]
            own = ResetDraft(model, qpos=qpos, qvel=qvel)
            for term in self._terms:
                term.apply(own, self._rng)
            if own.qpos is not qpos:  # a term put another tensor there
                qpos.copy_(own.qpos)
            if own.qvel is not qvel:
                qvel.copy_(own.qvel)
        require_sound(ids, draft.qpos, "positions")
        require_sound(ids, draft.qvel, "velocities")
        self._physics.reset(ids, draft.qpos, draft.qvel)

    def table(self) -> tuple[ActiveTerm, ...]:
        """The terms."""
        return tuple(ActiveTerm(ManagerKind.EVENT, term.name) for term in self._terms)
