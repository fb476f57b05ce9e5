"""The words of the inference ring, and what its two ends give and take.

A slot carries the tick and the epoch (the number of the policy) of what is in it, and both
sides check them: a mismatch is a `ProtocolError`, never a wrong action.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.runtime.shared_memory import CACHE_LINE, WORD

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.runtime.ring_storage import RingTensors

NO_EPOCH: Final = -1
"""Epoch of a request whose group has had no response yet."""
LINE: Final = CACHE_LINE // WORD
"""Words of a header."""


class RingWord(IntEnum):
    """Words of the ring's header, written by the learner alone."""

    STOP = 0
    RESPONDED = 1
    RESPONDED_TICK = 2


class SlotWord(IntEnum):
    """Words of a slot's two headers: the collector writes the request's, the learner the other."""

    TICK = 0
    EPOCH = 1
    COMMAND = 2


class Command(IntEnum):
    """What a response asks the collector to do."""

    STEP = 0
    SNAPSHOT = 1
    """Step, then publish the environments' random generator state on the board."""
    STOP = 2
    """End; there are no actions."""


@dataclass(frozen=True)
class Request:
    """A group's observations; views of the slot, valid until the response is given."""

    observation: Tensor
    """(n, o) float32."""
    done: Tensor
    """(n,) float32, 1 where an episode ended in the step before."""


@dataclass(frozen=True)
class Response:
    """A group's actions; a view of the slot, valid until the group's next request."""

    action: Tensor
    """(n, a) float32, normalised."""
    epoch: int
    command: Command


@dataclass(frozen=True)
class RingState:
    """What stands in the shared slots; read by either side at any moment."""

    requested_ticks: tuple[int, ...]
    """Tick of the newest request, by group; 0 before the first as well."""
    responded_ticks: tuple[int, ...]
    """Tick of the newest response, by group; 0 before the first as well."""
    response_epochs: tuple[int, ...]
    """Epoch of the newest response, by group; 0 before the first as well."""
    responses: int
    """Responses given in all."""
    stop_requested: bool
    """Whether the collector was asked to end."""


@dataclass(frozen=True)
class Slot:
    """Views of a group's slot."""

    request: memoryview
    """`SlotWord`s of the request."""
    response: memoryview
    """`SlotWord`s of the response."""
    shared: RingTensors

    @property
    def observation(self) -> Tensor:
        """(n, o) float32."""
        return self.shared.observation

    @property
    def done(self) -> Tensor:
        """(n,) float32."""
        return self.shared.done

    @property
    def action(self) -> Tensor:
        """(n, a) float32."""
        return self.shared.action
