"""The lockstep between collector and learner: observations one way, actions back.

The environments of a rank form as many *groups* as the ring has slots (one by default); a
slot belongs to a group. In tick *t* the collector publishes every group's observations, the
learner answers each with actions of one and the same policy. With two groups, one group is
stepped while the other's actions are inferred, and updates still fall only between ticks.

The slots divide the rows of the environments among them: together they are as large as the
one slot of a single group, and hold its rows in the same order.

The slots' tensors lie where the ring's storage has them: in host memory, or on a device. What
is written here of ticks, epochs, bells and flights holds for either.

A slot carries the tick and the epoch (the number of the policy) of what is in it, and both
sides check them: a mismatch is a `ProtocolError`, never a wrong action.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Self

from drivetrain_trainer.runtime.doorbell import Doorbell, Interrupt, Meanwhile, Peer, wait
from drivetrain_trainer.runtime.faults import ProtocolError, StaleTickError
from drivetrain_trainer.runtime.inference_flight import FlightCounter, InferenceFlight
from drivetrain_trainer.runtime.ring_storage import (
    Fence,
    HostStorage,
    RingShape,
    RingStorage,
    RingTensors,
)
from drivetrain_trainer.runtime.shared_memory import CACHE_LINE, WORD, MemoryPlan, SharedMemory

if TYPE_CHECKING:
    import torch
    from torch import Tensor

NO_EPOCH: Final = -1
"""Epoch of a request whose group has had no response yet."""

# Words of the ring's header, each group of them written by one side alone.
_STOP: Final = 0
_RESPONDED: Final = 1
_RESPONDED_TICK: Final = 2
# Words of a slot's two headers.
_TICK: Final = 0
_EPOCH: Final = 1
_EXTRA: Final = 2
_LINE: Final = CACHE_LINE // WORD


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
class _Slot:
    request: memoryview
    response: memoryview
    shared: RingTensors

    @property
    def observation(self) -> Tensor:
        return self.shared.observation

    @property
    def done(self) -> Tensor:
        return self.shared.done

    @property
    def action(self) -> Tensor:
        return self.shared.action


class InferenceRing:
    """The shared slots and their two bells; each process opens its own port on them."""

    def __init__(
        self,
        *,
        num_envs: int,
        observation_dim: int,
        action_dim: int,
        capacity: int,
        storage: RingStorage | None = None,
        memory: SharedMemory | None = None,
        requests: Doorbell | None = None,
        responses: Doorbell | None = None,
    ) -> None:
        for name, value in (
            ("num_envs", num_envs),
            ("observation_dim", observation_dim),
            ("action_dim", action_dim),
            ("capacity", capacity),
        ):
            if value < 1:
                raise ValueError(f"inference ring: {name} {value}, at least 1")
        self.num_envs = num_envs
        self.observation_dim = observation_dim
        self.action_dim = action_dim
        self.capacity = capacity
        self.groups = min(capacity, num_envs)
        """Groups that the environments form."""
        plan = MemoryPlan()
        self._header = plan.words(_LINE)
        self._headers = plan.words(2 * _LINE * capacity)
        self.memory = memory or SharedMemory.create(plan.nbytes, "inference-words")
        """Ticks, epochs and flags: in host memory, wherever the tensors are."""
        self.storage: RingStorage = storage or HostStorage(
            RingShape(num_envs, observation_dim, action_dim)
        )
        self.requests = requests or Doorbell()
        self.responses = responses or Doorbell()

    @classmethod
    def create(
        cls,
        num_envs: int,
        observation_dim: int,
        action_dim: int,
        capacity: int = 1,
        *,
        storage: RingStorage | None = None,
    ) -> Self:
        """A ring for `num_envs` environments with `capacity` slots, in host memory by default."""
        return cls(
            num_envs=num_envs,
            observation_dim=observation_dim,
            action_dim=action_dim,
            capacity=capacity,
            storage=storage,
        )

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory under it."""
        return self.memory.nbytes + self.storage.host_bytes

    def group_size(self, group: int) -> int:
        """Environments of a group; sizes differ by one at most."""
        return self.num_envs // self.groups + (group < self.num_envs % self.groups)

    def group_rows(self, group: int) -> slice:
        """Rows of a group among all environments of the rank."""
        smaller, larger = divmod(self.num_envs, self.groups)
        first = group * smaller + min(group, larger)
        return slice(first, first + self.group_size(group))

    def collector_port(self, learner: Peer) -> CollectorPort:
        """The end of the process that steps the environments."""
        return CollectorPort(self, learner)

    def learner_port(self, collector: Peer) -> LearnerPort:
        """The end of the process that holds the policy."""
        return LearnerPort(self, collector)

    def header(self) -> memoryview:
        """Words of the ring: the stop flag, responses given, tick of the newest response."""
        return self.memory.words(self._header, _LINE)

    def state(self) -> RingState:
        """Ticks and epochs in the slots now."""
        header = self.header()
        slots = [self.slot(group) for group in range(self.groups)]
        return RingState(
            requested_ticks=tuple(slot.request[_TICK] for slot in slots),
            responded_ticks=tuple(slot.response[_TICK] for slot in slots),
            response_epochs=tuple(slot.response[_EPOCH] for slot in slots),
            responses=header[_RESPONDED],
            stop_requested=bool(header[_STOP]),
        )

    def slot(self, group: int) -> _Slot:
        """Views of a group's slot."""
        words = self.memory.words(self._headers + 2 * CACHE_LINE * group, 2 * _LINE)
        return _Slot(
            request=words[:_LINE],
            response=words[_LINE:],
            shared=self.storage.tensors().part(self.group_rows(group)),
        )

    def close(self) -> None:
        """Close memory and bells; a second time does nothing."""
        self.storage.close()
        self.memory.close()
        self.requests.close()
        self.responses.close()

    def __getstate__(self) -> dict[str, object]:
        return {
            "num_envs": self.num_envs,
            "observation_dim": self.observation_dim,
            "action_dim": self.action_dim,
            "capacity": self.capacity,
            "storage": self.storage,
            "memory": self.memory,
            "requests": self.requests,
            "responses": self.responses,
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a received object is built like a new one


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
        slot.request[_TICK] = tick
        slot.request[_EPOCH] = self._epochs[group]
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
        if self._header[_STOP]:
            return Response(self._slots[group].action, self._epochs[group], Command.STOP)
        self._credits -= 1
        self._flight.taken()
        return self._take(tick, group)

    def flight(self, *, reset: bool = False) -> InferenceFlight:
        """Gauges now and their maxima; `reset` starts the maxima anew."""
        return self._flight.gauges(reset=reset)

    def _take(self, tick: int, group: int) -> Response:
        slot = self._slots[group]
        if slot.response[_TICK] != tick:
            raise ProtocolError(
                f"response of group {group}: tick", expected=tick, found=slot.response[_TICK]
            )
        epoch = slot.response[_EPOCH]
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
        return Response(own.action, epoch, Command(slot.response[_EXTRA]))

    def _seen_from(self, device: torch.device, group: int) -> RingTensors:
        """What environments on `device` see of a slot."""
        shared = self._slots[group].shared
        if device.type != self._storage.device.type:
            shared = shared.beside(self._storage.buffer)
        self._own[group] = shared
        return shared

    def _answered(self) -> tuple[int, int]:
        return self._header[_RESPONDED], self._header[_RESPONDED_TICK]


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
        found = (slot.request[_TICK], slot.request[_EPOCH])
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
        slot.response[_TICK] = tick
        slot.response[_EPOCH] = epoch
        slot.response[_EXTRA] = int(command)
        self._epochs[group] = epoch
        self._header[_RESPONDED_TICK] = tick
        self._header[_RESPONDED] += 1
        self._ring.responses.ring()

    def stop(self) -> None:
        """Ask the collector to end, whatever it waits for."""
        self._header[_STOP] = 1
        self._ring.responses.ring()
