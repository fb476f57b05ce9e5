"""The learner's end of the inference ring: observations in, actions of one policy out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.runtime.doorbell import Interrupt, Meanwhile, Peer, wait
from drivetrain_trainer.runtime.faults import ProtocolError, StaleTickError
from drivetrain_trainer.runtime.ring_storage import Fence
from drivetrain_trainer.runtime.ring_words import NO_EPOCH, Command, Request, RingWord, SlotWord

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.runtime.inference_ring import InferenceRing


class LearnerPort:
    """The learner's end: answers each group of a tick, in the groups' order."""

    def __init__(self, ring: InferenceRing, collector: Peer) -> None:
        self.groups = ring.groups
        self.rows = tuple(ring.group_rows(group) for group in range(ring.groups))
        """Of each group, among all environments of the rank."""
        self.observation_shape = (ring.num_envs, ring.observation_dim)
        self._ring = ring
        self._storage = ring.storage
        self._peer = collector
        self._header = ring.header()
        self._slots = [ring.slot(group) for group in range(ring.groups)]
        self._epochs = [NO_EPOCH] * ring.groups
        self._placed = [False] * ring.groups
        self._credits = 0

    def await_request(
        self,
        tick: int,
        timeout_s: float | None,
        *,
        group: int = 0,
        interrupt: Interrupt | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> Request:
        """Wait for a group's observations of a tick.

        Args:
            tick: the next one of this group.
            timeout_s: seconds at most; None waits as long as the collector lives.
            group: groups are served in order, 0 first.
            interrupt: ends the wait early.
            meanwhile: work to do while waiting. Where a tick's rows need more slots than the
                ingress has, this must drain it, or both sides wait for each other.

        Raises:
            PeerDiedError: the collector is gone (`CollectorFailedError` says why).
            StaleTickError: the collector lives but did not come in time.
            StopRequestedError: `interrupt` was set.
            ProtocolError: the request is for another tick, or answers another policy.
        """
        if self._credits == 0:
            self._credits = wait(
                self._ring.requests, self._peer, timeout_s, interrupt=interrupt, meanwhile=meanwhile
            )
            if self._credits == 0:
                raise StaleTickError(tick, timeout_s or 0.0, waiting_for="the collector's request")
        self._credits -= 1
        slot = self._slots[group]
        found = (slot.request[SlotWord.TICK], slot.request[SlotWord.EPOCH])
        if found != (tick, self._epochs[group]):
            raise ProtocolError(
                f"request of group {group}: (tick, epoch)",
                expected=(tick, self._epochs[group]),
                found=found,
            )
        self._storage.wait(Fence.REQUESTED, group)
        return Request(slot.observation, slot.done)

    def arrived(self) -> int:
        """Requests that are there and have not been taken; never waits."""
        self._credits += self._ring.requests.collect()
        return self._credits

    def place(self, action: Tensor, *, group: int = 0) -> None:
        """Copy a group's actions (n, a), from any device, to where `respond` publishes them."""
        self._slots[group].action.copy_(action)
        self._storage.record(Fence.PLACED, group)
        self._placed[group] = True

    def respond(
        self,
        tick: int,
        epoch: int,
        action: Tensor | None,
        command: Command = Command.STEP,
        *,
        group: int = 0,
    ) -> None:
        """Publish a group's actions of a tick and release the collector.

        Args:
            tick: of the request.
            epoch: number of the policy that chose the actions: never falling, and the same
                for all groups of a tick.
            action: (n, a), on any device; copied here. None with `Command.STOP`, or where
                `place` has copied it.
            command: what to do with them.
            group: of the request.
        """
        slot = self._slots[group]
        if action is not None:
            self.place(action, group=group)
        elif command is not Command.STOP and not self._placed[group]:
            raise ValueError(f"tick {tick}: {command.name} needs actions")
        self._placed[group] = False
        self._storage.record(Fence.RELEASED, group)
        slot.response[SlotWord.TICK] = tick
        slot.response[SlotWord.EPOCH] = epoch
        slot.response[SlotWord.COMMAND] = int(command)
        self._epochs[group] = epoch
        self._header[RingWord.RESPONDED_TICK] = tick
        self._header[RingWord.RESPONDED] += 1
        self._ring.responses.ring()

    def stop(self) -> None:
        """Ask the collector to end, whatever it waits for."""
        self._header[RingWord.STOP] = 1
        self._ring.responses.ring()
