"""The newest weights of a policy, from the learner to whoever acts with them.

Two records take turns, so a whole version is always there: the writer fills the one that is
not the newest, then says that it is. A reader that is overtaken looks again; a writer that is
killed in the middle leaves the version before. Versions that nobody took are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from drivetrain_trainer.runtime.doorbell import Doorbell, wait
from drivetrain_trainer.runtime.faults import ProtocolError, StaleTickError
from drivetrain_trainer.runtime.sequence_lock import HEADER_WORDS, Patience, Record
from drivetrain_trainer.runtime.shared_memory import CACHE_LINE, MemoryPlan, SharedMemory

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.runtime.doorbell import Interrupt, Peer
    from drivetrain_trainer.runtime.sequence_lock import Whole

NO_VERSION: Final = -1
"""Before the first publication."""
_FLOAT: Final = 4
_PUBLICATIONS: Final = 0
"""Word: how many there were; the newest lies in the record of that number's parity."""


@dataclass(frozen=True)
class Weights:
    """One whole version."""

    version: int
    values: Tensor
    """(size,) float32 on the CPU, the reader's own."""


class WeightBoard:
    """One writer, any number of readers; each process has its own object of it."""

    def __init__(
        self,
        *,
        size: int,
        memory: SharedMemory | None = None,
        published: Doorbell | None = None,
    ) -> None:
        if size < 1:
            raise ValueError(f"weight board: size {size}, at least 1")
        self.size = size
        """Weights of a version."""
        plan = MemoryPlan()
        words = plan.words(HEADER_WORDS)
        headers = plan.words(2 * HEADER_WORDS)
        bodies = [plan.floats(size), plan.floats(size)]
        self.memory = memory or SharedMemory.create(plan.nbytes, "weights")
        self.published = published or Doorbell()
        """Rung with each version; one reader at a time may wait for it."""
        self._words = self.memory.words(words, HEADER_WORDS)
        self._records = tuple(
            Record(self.memory, headers + CACHE_LINE * place, body, size * _FLOAT)
            for place, body in enumerate(bodies)
        )
        self._seen = 0
        """Reader: number of the publication that was taken last; the first one is 1."""
        self._version = NO_VERSION

    @classmethod
    def create(cls, size: int) -> WeightBoard:
        """A board for `size` weights, without a version yet."""
        return cls(size=size)

    @property
    def version(self) -> int:
        """The version that this side published or took last; `NO_VERSION` before."""
        return self._version

    def publish(self, version: int, values: Tensor) -> None:
        """Writer: replace the weights; never waits for a reader.

        Args:
            version: Greater than the one before, 0 or more.
            values: (size,) float32, contiguous on the CPU.

        Raises:
            ValueError: either is something else.
        """
        if version <= self._version:
            raise ValueError(f"weights version {version}: not after {self._version}")
        if (
            values.dtype != torch.float32
            or tuple(values.shape) != (self.size,)
            or values.device.type != "cpu"
            or not values.is_contiguous()
        ):
            raise ValueError(
                f"weights are a contiguous vector of {self.size} float32 on the CPU; got "
                f"{tuple(values.shape)} {values.dtype} on {values.device}"
            )
        number = self._words[_PUBLICATIONS] + 1
        data = values.detach().numpy().data.cast("B")
        self._records[number % 2].write(version, data)
        self._words[_PUBLICATIONS] = number
        self._version = version
        self.published.ring()

    def read(self, learner: Peer | None = None) -> Weights | None:
        """Reader: the newest whole version; None where that was taken already, or there is none.

        Args:
            learner: The writer's process; a whole version is waited for as long as it lives,
                within the bounds of `sequence_lock.PATIENCE_S`.

        Raises:
            PeerDiedError: the learner is gone, and what it announced is not whole.
            StaleTickError: no whole version could be got.
            ProtocolError: it is not after the version that was taken last, or of another size.
        """
        patience = Patience(learner, "whole weights")
        while (number := self._words[_PUBLICATIONS]) > self._seen:
            # Overtaken within: the other record is the newest by now, so it is looked at next.
            whole = self._records[number % 2].attempt()
            if whole is not None:
                # By its own count, since it may be a later publication than was announced.
                return self._take(whole.version - number % 2, whole)
            patience.pause(self._version)
        return None

    def await_newer(
        self, learner: Peer, timeout_s: float | None, *, interrupt: Interrupt | None = None
    ) -> Weights:
        """Reader: `read`, waiting where there is none yet.

        Args:
            learner: The writer's process.
            timeout_s: Seconds at most; None waits as long as the learner lives.
            interrupt: Ends the wait early.

        Raises:
            PeerDiedError: the learner is gone, and left nothing newer.
            StopRequestedError: `interrupt` was set.
            StaleTickError: the time is up, or as of `read`.
            ProtocolError: as of `read`.
        """
        while (weights := self.read(learner)) is None:
            if wait(self.published, learner, timeout_s, interrupt=interrupt) == 0:
                raise StaleTickError(
                    self._version, timeout_s or 0.0, waiting_for="a newer version of the weights"
                )
        return weights

    def close(self) -> None:
        """Close memory and bell; a second time does nothing."""
        self.memory.close()
        self.published.close()

    def _take(self, number: int, whole: Whole) -> Weights:
        nbytes, version = self.size * _FLOAT, whole.tick
        if len(whole.data) != nbytes:
            raise ProtocolError("weights: bytes", expected=nbytes, found=len(whole.data))
        if version <= self._version:
            raise ProtocolError(
                "weights: version", expected=f"after {self._version}", found=version
            )
        self._seen, self._version = number, version
        return Weights(version, torch.frombuffer(whole.data, dtype=torch.float32))

    def __getstate__(self) -> dict[str, object]:
        return {"size": self.size, "memory": self.memory, "published": self.published}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a received object is built like a new one
