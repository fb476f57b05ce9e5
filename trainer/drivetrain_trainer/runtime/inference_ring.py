"""The lockstep between collector and learner: observations one way, actions back.

The environments of a rank form as many *groups* as the ring has slots (one by default); a
slot belongs to a group. In tick *t* the collector publishes every group's observations, the
learner answers each with actions of one and the same policy. With two groups, one group is
stepped while the other's actions are inferred, and updates still fall only between ticks.

The slots divide the rows of the environments among them: together they are as large as the
one slot of a single group, and hold its rows in the same order.

The slots' tensors lie where the ring's storage has them: in host memory, or on a device. What
is written here of ticks, epochs, bells and flights holds for either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from drivetrain_trainer.runtime.collector_port import CollectorPort
from drivetrain_trainer.runtime.doorbell import Doorbell
from drivetrain_trainer.runtime.learner_port import LearnerPort
from drivetrain_trainer.runtime.ring_storage import HostStorage, RingShape, RingStorage
from drivetrain_trainer.runtime.ring_words import LINE, RingState, RingWord, Slot, SlotWord
from drivetrain_trainer.runtime.shared_memory import CACHE_LINE, MemoryPlan, SharedMemory

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.doorbell import Peer


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
        self._header = plan.words(LINE)
        self._headers = plan.words(2 * LINE * capacity)
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
        return self.memory.words(self._header, LINE)

    def state(self) -> RingState:
        """Ticks and epochs in the slots now."""
        header = self.header()
        slots = [self.slot(group) for group in range(self.groups)]
        return RingState(
            requested_ticks=tuple(slot.request[SlotWord.TICK] for slot in slots),
            responded_ticks=tuple(slot.response[SlotWord.TICK] for slot in slots),
            response_epochs=tuple(slot.response[SlotWord.EPOCH] for slot in slots),
            responses=header[RingWord.RESPONDED],
            stop_requested=bool(header[RingWord.STOP]),
        )

    def slot(self, group: int) -> Slot:
        """Views of a group's slot."""
        words = self.memory.words(self._headers + 2 * CACHE_LINE * group, 2 * LINE)
        return Slot(
            request=words[:LINE],
            response=words[LINE:],
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
