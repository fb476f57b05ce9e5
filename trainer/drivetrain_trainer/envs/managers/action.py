"""Actions: from the policy's [-1, 1] to the actuators' units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.envs.vector_env import ActiveTerm, ManagerKind

if TYPE_CHECKING:
    from drivetrain_trainer.envs.state import TermState


class ActionManager:
    """Maps each action affinely onto its actuator's range, and applies it."""

    def __init__(self, state: TermState) -> None:
        """Read the ranges from the model.

        Raises:
            EnvError: an actuator has no finite range for [-1, 1] to be mapped onto.
        """
        model = state.model
        for index, name in enumerate(model.actuator_names):
            low, high = float(model.control_low[index]), float(model.control_high[index])
            if not (low < high and abs(low) != torch.inf and abs(high) != torch.inf):
                raise EnvError(
                    f"actuator {name or index!r} has the control range [{low}, {high}]: give it a"
                    " finite ctrlrange, onto which actions of [-1, 1] are mapped"
                )
        self.low = model.control_low.to(torch.float32)
        self.high = model.control_high.to(torch.float32)
        self._scale = (self.high - self.low) / 2
        self._offset = (self.high + self.low) / 2
        self._state = state

    @property
    def size(self) -> int:
        """Columns of an action."""
        return self._state.model.nu

    def validate(self, action: Tensor) -> None:
        """Refuse an action of the wrong shape, dtype or device.

        Raises:
            EnvError: naming what it is and what it should be.
        """
        expected = self._state.action
        if (
            action.shape != expected.shape
            or action.dtype != expected.dtype
            or action.device != expected.device
        ):
            raise EnvError(
                f"action must be {expected.dtype} {tuple(expected.shape)} on {expected.device},"
                f" got {action.dtype} {tuple(action.shape)} on {action.device}"
            )

    def apply(self, action: Tensor) -> None:
        """Write the raw action for the terms to read, and the controls; nothing is clamped."""
        raw = self._state.action
        torch.addcmul(self._offset, action, self._scale, out=raw)
        self._state.ctrl.copy_(raw)

    def table(self) -> tuple[ActiveTerm, ...]:
        """The one term there is."""
        return (ActiveTerm(ManagerKind.ACTION, "control", size=self.size),)
