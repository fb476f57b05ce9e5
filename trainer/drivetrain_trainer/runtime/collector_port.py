"""The collector's end of the inference ring: observations out, actions in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.runtime.doorbell import Peer, wait
from drivetrain_trainer.runtime.faults import ProtocolError, StaleTickError
from drivetrain_trainer.runtime.inference_flight import FlightCounter, InferenceFlight
from drivetrain_trainer.runtime.ring_storage import Fence, RingTensors
from drivetrain_trainer.runtime.ring_words import NO_EPOCH, Command, Response, RingWord, SlotWord

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from drivetrain_trainer.runtime.inference_ring import InferenceRing


class CollectorPort:
    """The collector's end: strictly request, then response, for each group in turn.

    What it takes and gives is on the environments' device. Where that is not the ring's, its
    tensors are carried over, through host memory that copies need not stage.
    """

    def __init__(self, ring: InferenceRing, learner: Peer) -> None:
        self.groups = ring.groups
        self._ring = ring
        self._storage = ring.storage
        self._peer = learner
        self._header = ring.header()
        self._slots = [ring.slot(group) for group in range(ring.groups)]
        self._own: dict[int, RingTensors] = {}
        """By group, what its environments see of the slot: it itself, or a copy beside it."""
        self._epochs = [NO_EPOCH] * ring.groups
        self._credits = 0
        self._flight = FlightCounter(self._answered)

    def request(self, tick: int, observation: Tensor, done: Tensor, *, group: int = 0) -> None:
        """Publish a group's observations for a tick and wake the learner.

        Args:
            tick: of the action that is asked for.
            observation: (n, o).
            done: (n,) where an episode ended in the step before.
            group: whose.
        """
        slot = self._slots[group]
        own = self._own.get(group) or self._seen_from(observation.device, group)
        self._storage.wait(Fence.RELEASED, group)
        own.observation.copy_(observation)
        own.done.copy_(done)
        if own is not slot.shared:
            slot.observation.copy_(own.observation, non_blocking=True)
            slot.done.copy_(own.done, non_blocking=True)
        self._storage.record(Fence.REQUESTED, group)
        slot.request[SlotWord.TICK] = tick
        slot.request[SlotWord.EPOCH] = self._epochs[group]
        self._ring.requests.ring()
        self._flight.requested(tick)

    def requested_observation(self, group: int = 0) -> Tensor:
        """(n, o) what the group's latest request published; valid until its next request."""
        return self._own[group].observation

    def await_response(
        self, tick: int, timeout_s: float | None = None, *, group: int = 0
    ) -> Response:
        """Wait for a group's actions of a tick.

        Raises:
            PeerDiedError: the learner is gone.
            StaleTickError: no answer within `timeout_s` seconds.
            ProtocolError: the answer is for another tick, or from another policy.
        """
        while self._credits == 0:
            rings = wait(self._ring.responses, self._peer, timeout_s)
            if rings == 0:
                raise StaleTickError(tick, timeout_s or 0.0, waiting_for="the learner's actions")
            self._credits += rings
            self._flight.observe()
        if self._header[RingWord.STOP]:
            return Response(self._slots[group].action, self._epochs[group], Command.STOP)
        self._credits -= 1
        self._flight.taken()
        return self._take(tick, group)

    def flight(self, *, reset: bool = False) -> InferenceFlight:
        """Gauges now and their maxima; `reset` starts the maxima anew."""
        return self._flight.gauges(reset=reset)

    def _take(self, tick: int, group: int) -> Response:
        slot = self._slots[group]
        if slot.response[SlotWord.TICK] != tick:
            raise ProtocolError(
                f"response of group {group}: tick",
                expected=tick,
                found=slot.response[SlotWord.TICK],
            )
        epoch = slot.response[SlotWord.EPOCH]
        newest = max(self._epochs)
        if epoch < newest or (group > 0 and epoch != self._epochs[0]):
            raise ProtocolError(
                f"response of group {group}, tick {tick}: epoch",
                expected=self._epochs[0] if group else f"at least {newest}",
                found=epoch,
            )
        self._epochs[group] = epoch
        self._storage.wait(Fence.PLACED, group)
        own = self._own[group]
        if own is not slot.shared:
            own.action.copy_(slot.action, non_blocking=True)
            self._storage.barrier()
        return Response(own.action, epoch, Command(slot.response[SlotWord.COMMAND]))

    def _seen_from(self, device: torch.device, group: int) -> RingTensors:
        """What environments on `device` see of a slot."""
        shared = self._slots[group].shared
        if device.type != self._storage.device.type:
            shared = shared.beside(self._storage.buffer)
        self._own[group] = shared
        return shared

    def _answered(self) -> tuple[int, int]:
        return self._header[RingWord.RESPONDED], self._header[RingWord.RESPONDED_TICK]
