"""What a term may read: the worlds after the latest step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drivetrain_trainer.physics.port import Physics


class TermState:
    """The worlds as terms see them, in the backend's own precision.

    Tensors are live views of simulator memory: a term reads them and returns a tensor of
    its own (or a view), and never writes, nor asks for a Python number (``.item()``).
    """

    def __init__(self, physics: Physics, substeps: int) -> None:
        self._physics = physics
        self._outputs: dict[str, Tensor] = {}
        self._tracked: dict[str, tuple[Callable[[TermState], Tensor], Tensor]] = {}
        self.model = physics.model
        self.qpos = physics.qpos
        """(N, nq)."""
        self.qvel = physics.qvel
        """(N, nv)."""
        self.ctrl = physics.ctrl
        """(N, nu), as applied."""
        self.device = physics.qpos.device
        """Where the worlds' tensors, and all that is made of them, lie."""
        self.action = torch.zeros(physics.num_worlds, physics.model.nu, device=self.device)
        """(N, nu) float32: the latest action in raw units."""
        self.step_seconds = physics.model.timestep * substeps
        """Seconds of one environment step."""

    @property
    def num_envs(self) -> int:
        """N."""
        return self._physics.num_worlds

    def output(self, name: str) -> Tensor:
        """(N, ...) a derived field of the last substep that the definition asked for.

        Raises:
            PhysicsError: it did not ask for it.
        """
        found = self._outputs.get(name)
        if found is None:
            found = self._outputs[name] = self._physics.output(name)
        return found

    def change(self, name: str) -> Tensor:
        """(N, ...) how far a tracked quantity moved in the latest step."""
        quantity, before = self._tracked[name]
        return quantity(self) - before

    def track(self, quantities: Mapping[str, Callable[[TermState], Tensor]]) -> None:
        """Remember these from before each step on."""
        for name, quantity in quantities.items():
            self._tracked[name] = (quantity, quantity(self).clone())

    def remember(self) -> None:
        """Take the tracked quantities' values, right before a step."""
        for quantity, before in self._tracked.values():
            before.copy_(quantity(self))
