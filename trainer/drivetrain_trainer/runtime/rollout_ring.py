"""Whole rollouts from a collector that acts without pause to a learner that takes them in order.

The line is `ReplayIngress` with one rollout a slot, so bells, back-pressure, ends and accounting
are the ones of the replay; here are the slot's fields and its lock. A slot is filled in place,
step by step. Its lock is odd meanwhile, and a checksum of its bytes goes with it where that is
asked for: a slot that was written while it should not have been is refused, never trained on.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, fields
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.runtime.faults import ProtocolError, StaleTickError
from drivetrain_trainer.runtime.ingress import ReplayIngress
from drivetrain_trainer.runtime.ingress_words import WriteResult, chunks_between

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.runtime.doorbell import Interrupt, Peer
    from drivetrain_trainer.runtime.ingress_consumer import IngressConsumer
    from drivetrain_trainer.runtime.ingress_producer import IngressProducer

_ALIGNMENT: Final = 16
"""Floats; every field begins on a cache line of its own."""


class DropPolicy(Enum):
    """What becomes of a rollout for which there is no free slot."""

    WAIT = "wait"
    """The collector waits, and the wait is counted: nothing is lost."""
    DROP_NEWEST = "drop_newest"
    """It is not begun, and counts as dropped; what is in the ring stays."""


class _Lock(IntEnum):
    """Words of a slot's header after those of the ingress."""

    VERSION = 4
    """Odd while the slot is being filled."""
    CHECKSUM = 5


@dataclass(frozen=True)
class RolloutLayout:
    """Sizes of a rollout, and where its fields lie in a slot."""

    steps: int
    """T: steps of each environment."""
    envs: int
    """N."""
    observation_dim: int
    action_dim: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise ValueError(f"rollout: {field.name} {value}, at least 1")

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the fields of `Rollout`, in their order."""
        grid = (self.steps, self.envs)
        observations = (*grid, self.observation_dim)
        return (
            observations,
            (*grid, self.action_dim),
            grid,
            grid,
            grid,
            grid,
            observations,
            (self.envs, self.observation_dim),
        )

    @property
    def floats(self) -> int:
        """Of a slot."""
        return sum(_padded(shape) for shape in self.shapes())

    def rollout(self, slot: Tensor, *, sequence: int, policy_version: int | None) -> Rollout:
        """The fields of a slot (floats,), as views of it."""
        views: list[Tensor] = []
        offset = 0
        for shape in self.shapes():
            views.append(slot[offset : offset + math.prod(shape)].view(shape))
            offset += _padded(shape)
        observations, actions, log_probs, rewards, dones, truncations, terminal, bootstrap = views
        return Rollout(
            observations=observations,
            actions=actions,
            log_probs=log_probs,
            rewards=rewards,
            dones=dones,
            truncations=truncations,
            terminal_observations=terminal,
            bootstrap_observations=bootstrap,
            sequence=sequence,
            policy_version=policy_version,
        )


@dataclass(frozen=True)
class Rollout:
    """T steps of N environments, float32 views of a slot.

    The collector may write to them until it publishes; the learner may read them until it
    releases.
    """

    observations: Tensor
    """(T, N, O): what was acted on."""
    actions: Tensor
    """(T, N, A)"""
    log_probs: Tensor
    """(T, N): of the actions, under the weights of `policy_version`."""
    rewards: Tensor
    """(T, N)"""
    dones: Tensor
    """(T, N): 1 where an episode ended with this step, for whatever reason."""
    truncations: Tensor
    """(T, N): 1 where it ended by its time limit alone, so its value is bootstrapped."""
    terminal_observations: Tensor
    """(T, N, O): the last of an episode, where `dones`; elsewhere without meaning."""
    bootstrap_observations: Tensor
    """(N, O): what follows the last step."""
    sequence: int
    """Number of the rollout in the ring."""
    policy_version: int | None
    """Of the weights that acted (`Weights.version`); None until it is published."""

    def fields(self) -> tuple[Tensor, ...]:
        """The tensors, in their order."""
        return (
            self.observations,
            self.actions,
            self.log_probs,
            self.rewards,
            self.dones,
            self.truncations,
            self.terminal_observations,
            self.bootstrap_observations,
        )


@dataclass(frozen=True)
class RolloutCounters:
    """Exact accounting of a ring; counts are rollouts."""

    depth: int
    published: int
    taken: int
    occupancy: int
    """In the ring now."""
    high_water: int
    """Most at once."""
    backpressure_waits: int
    """Rollouts whose slot had to be waited for."""
    backpressure_wait_s: float
    dropped: int
    """Not published: no free slot under `DROP_NEWEST`, or the ring ended."""
    ended_returns: int
    """Of these, the ones that the ring's end cut off."""


class RolloutRing:
    """The shared slots; sent to the collector through a `Channel`, each side opens its end."""

    def __init__(
        self, layout: RolloutLayout, line: ReplayIngress, *, checksum: bool = False
    ) -> None:
        self.layout = layout
        self.checksum = checksum
        self._line = line

    @classmethod
    def create(
        cls,
        layout: RolloutLayout,
        depth: int,
        *,
        checksum: bool = False,
        first_sequence: int = 0,
    ) -> RolloutRing:
        """An empty ring.

        Args:
            layout: Of every rollout.
            depth: Slots, at least 1; 2 let the collector fill one while another is trained on.
            checksum: Whether the bytes of each rollout are checked: about a millisecond for
                every 4 MB, on either side.
            first_sequence: Number of the first rollout.
        """
        line = ReplayIngress.create(depth, 1, layout.floats, first_sequence=first_sequence)
        return cls(layout, line, checksum=checksum)

    def producer(self, learner: Peer, *, policy: DropPolicy = DropPolicy.WAIT) -> RolloutProducer:
        """The collector's end."""
        return RolloutProducer(self, self._line.producer(learner), policy)

    def consumer(self, collector: Peer) -> RolloutConsumer:
        """The learner's end."""
        return RolloutConsumer(self, self._line.consumer(collector))

    @property
    def line(self) -> ReplayIngress:
        """The slots and bells underneath."""
        return self._line

    def counters(self) -> RolloutCounters:
        """The accounting now; exact on either side for what that side does."""
        line = self._line.counters()
        first = self._line.first_sequence
        return RolloutCounters(
            depth=line.ingress_depth,
            published=chunks_between(first, line.published_sequence),
            taken=chunks_between(first, line.release_sequence),
            occupancy=line.occupancy,
            high_water=line.high_water_occupancy,
            backpressure_waits=line.backpressure_waits,
            backpressure_wait_s=line.backpressure_wait_s,
            dropped=line.dropped_batches,
            ended_returns=line.closed_returns + line.stop_returns,
        )

    def close(self) -> None:
        """Close memory and bells; a second time does nothing."""
        self._line.close()


class RolloutProducer:
    """Fills one slot at a time."""

    def __init__(self, ring: RolloutRing, line: IngressProducer, policy: DropPolicy) -> None:
        self._ring = ring
        self._line = line
        self._policy = policy
        self._headers = ring.line.headers()
        self._slots = ring.line.slots()
        self._slot: int | None = None
        """The one that is being filled."""

    def begin(self) -> Rollout | WriteResult:
        """The next rollout to be filled; the same one until it is published.

        Returns:
            Views to write to; FULL where it is dropped, CLOSED or STOPPED where the ring ended.

        Raises:
            PeerDiedError: the learner is gone.
        """
        slot = self._line.reserve(waiting=self._policy is DropPolicy.WAIT)
        if isinstance(slot, WriteResult):
            self._slot = None
            return slot
        if self._slot is None:
            self._slot = slot
            self._headers[slot][_Lock.VERSION] += 1
        sequence = self._ring.line.counters().published_sequence
        return self._ring.layout.rollout(
            self._slots[slot, 0], sequence=sequence, policy_version=None
        )

    def publish(self, *, policy_version: int) -> WriteResult:
        """Give the rollout that was begun to the learner.

        Args:
            policy_version: Of the weights that acted, 0 or more.

        Returns:
            COMPLETE; CLOSED or STOPPED where the ring ended meanwhile: the rollout is dropped.
        """
        if self._slot is None:
            raise RuntimeError("rollout ring: no rollout was begun")
        if policy_version < 0:
            raise ValueError(f"rollout ring: policy_version {policy_version}, at least 0")
        header = self._headers[self._slot]
        version = header[_Lock.VERSION] + 1
        if self._ring.checksum:
            header[_Lock.CHECKSUM] = _checksum(self._slots[self._slot, 0], version, policy_version)
        header[_Lock.VERSION] = version
        self._slot = None
        return self._line.commit(policy_version, 1)


class RolloutConsumer:
    """Takes complete rollouts, the oldest first; used by one thread at a time."""

    def __init__(self, ring: RolloutRing, line: IngressConsumer) -> None:
        self._ring = ring
        self._line = line
        self._headers = ring.line.headers()
        self._version = 0
        """Of the slot that is being read."""

    def available(self) -> int:
        """Complete rollouts that are there now."""
        return self._line.available()

    def take(self) -> Rollout | None:
        """The oldest complete rollout, the same one until it is released; None without one.

        Raises:
            ProtocolError: the slot is being written, or does not hold what was published.
        """
        chunk = self._line.peek()
        if chunk is None:
            return None
        slot = self._ring.line.slot_of(chunk.sequence)
        header = self._headers[slot]
        self._version = header[_Lock.VERSION]
        if self._version % 2 or chunk.rows.shape[0] != 1:
            raise ProtocolError(
                f"rollout slot {slot}: lock", expected="an even one", found=self._version
            )
        if self._ring.checksum:
            found = _checksum(chunk.rows[0], self._version, chunk.tick)
            expected = header[_Lock.CHECKSUM]
            if found != expected:
                raise ProtocolError(
                    f"rollout slot {slot}: checksum", expected=expected, found=found
                )
        return self._ring.layout.rollout(
            chunk.rows[0], sequence=chunk.sequence, policy_version=chunk.tick
        )

    def await_rollout(
        self, timeout_s: float | None, *, interrupt: Interrupt | None = None
    ) -> Rollout:
        """`take`, waiting where there is none.

        Args:
            timeout_s: Seconds at most; None waits as long as the collector lives.
            interrupt: Ends the wait early.

        Raises:
            PeerDiedError: the collector is gone, and every complete rollout was taken.
            StaleTickError: the time is up.
            StopRequestedError: `interrupt` was set.
            ProtocolError: as of `take`.
        """
        while (rollout := self.take()) is None:
            self._await(timeout_s, interrupt)
        return rollout

    def release(self, rollout: Rollout) -> None:
        """Give the slot of the oldest rollout back to the collector.

        Raises:
            ProtocolError: it is not that one, or the slot was written while it was read.
        """
        chunk = self._line.peek()
        due = None if chunk is None else chunk.sequence
        if chunk is None or due != rollout.sequence:
            raise ProtocolError("rollout released", expected=due, found=rollout.sequence)
        slot = self._ring.line.slot_of(rollout.sequence)
        found = self._headers[slot][_Lock.VERSION]
        if found != self._version:
            raise ProtocolError(
                f"rollout slot {slot}: lock while it was read", expected=self._version, found=found
            )
        self._line.release(chunk)

    def request_stop(self) -> None:
        """Ask the collector to publish nothing more, also where it waits for a slot."""
        self._line.request_stop()

    def close(self) -> None:
        """Take nothing more; a collector that waits for a slot returns."""
        self._line.close()

    def _await(self, timeout_s: float | None, interrupt: Interrupt | None) -> None:
        number = self._ring.counters().taken
        try:
            self._line.await_published(number, timeout_s, interrupt=interrupt)
        except StaleTickError as error:
            raise StaleTickError(number, error.waited_s, waiting_for="a rollout") from None


def _padded(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // _ALIGNMENT) * _ALIGNMENT


def _checksum(slot: Tensor, version: int, policy_version: int) -> int:
    seed = zlib.crc32(b"%d %d" % (version, policy_version))
    return zlib.crc32(slot.numpy().data, seed)
