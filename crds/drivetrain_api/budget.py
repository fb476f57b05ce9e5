"""Memory of the tensor runtime: the arithmetic, and the refusal that shows it.

All sizes are per rank and in bytes of float32. With N environments, B batch rows, U updates
an iteration, o observation, o' inference observation, a action and c critic-only values:

- a replay row holds W = 2 o + a + 3 + 2 c values;
- the inference ring holds N (o' + 1 + a) values, however many slots divide them;
- inference is what it holds, the learner's own copy of a tick, 64 KiB for each allocation
  (two, and three events a slot of a ring on a device), and a margin;
- the replay is its rows, two batches of B x U rows, on a device the ingress's slots, and a
  margin. A margin is a tenth, and 32 MiB at least.

Where the learner is on a device, all of that lies in the device's memory; the slots of the
ingress, and of a ring that is not on the device, lie in shared host memory, which counts
against the memory cgroup like everything else of the host (and not against ``/dev/shm``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.trainingrun import TrainingRunSpec

FLOAT32: Final = 4
KIB: Final = 1 << 10
MIB: Final = 1 << 20
ALLOCATION: Final = 64 * KIB
"""Rounding of one allocation; an event of a ring on a device counts as one."""
EVENTS_PER_SLOT: Final = 3
"""Requested, placed, released."""
LEAST_MARGIN: Final = 32 * MIB
"""Least workspace beside what is counted exactly; a tenth of it where that is more."""
USABLE_TENTHS: Final = 8
"""Tenths of the available memory that a run may plan for."""
TORCHRUN_BYTES: Final = 300 * MIB
"""Resident memory of a pod's torchrun."""
RANK_BYTES: Final = 750 * MIB
"""Resident memory of a learner and its collector before their tensors."""


@dataclass(frozen=True)
class TensorSizes:
    """What the arithmetic is a function of; every field as in the module's docstring."""

    num_envs: int
    batch_size: int
    updates_per_step: int
    observation_dim: int
    inference_observation_dim: int
    action_dim: int
    inference_slot_capacity: int
    replay_ingress_depth: int
    replay_ingress_slot_rows: int
    replay_rows: int
    on_device: bool
    """Whether the learner, and with it the replay, is on a device."""
    ring_on_device: bool = False
    """Whether the inference ring is; only beside a learner that is."""
    critic_observation_dim: int = 0
    scratch_bytes: int = 0

    def __post_init__(self) -> None:
        if self.ring_on_device and not self.on_device:
            raise ValueError("an inference ring on a device needs the learner there")

    @property
    def row_width(self) -> int:
        """Values of a replay row, W."""
        return 2 * self.observation_dim + self.action_dim + 3 + 2 * self.critic_observation_dim

    @property
    def ipc_events(self) -> int:
        """Events that a ring on a device shares between its two processes; 0 on the host."""
        return EVENTS_PER_SLOT * self.inference_slot_capacity if self.ring_on_device else 0


def sizes_of(
    spec: TrainingRunSpec,
    *,
    observation_dim: int,
    action_dim: int,
    on_device: bool,
    ring_on_device: bool | None = None,
) -> TensorSizes:
    """Sizes of a composed spec for an environment without critic-only observations.

    Args:
        spec: Composed.
        observation_dim: Of the task.
        action_dim: Of the task.
        on_device: Whether the learner is on a device.
        ring_on_device: Whether the inference ring is; as the learner where it is None.

    A collector whose tensors are on a device packs a tick's rows there: they are the scratch.
    """
    algo, training = spec.algo, spec.training
    ring = on_device if ring_on_device is None else ring_on_device
    sizes = TensorSizes(
        num_envs=algo.num_envs,
        batch_size=algo.batch_size,
        updates_per_step=algo.updates_per_step,
        observation_dim=observation_dim,
        inference_observation_dim=observation_dim,
        action_dim=action_dim,
        inference_slot_capacity=training.inference_slot_capacity,
        replay_ingress_depth=training.replay_ingress_depth,
        replay_ingress_slot_rows=training.replay_ingress_slot_rows or algo.num_envs,
        replay_rows=algo.replay_rows,
        on_device=on_device,
        ring_on_device=ring,
    )
    packed = algo.num_envs * sizes.row_width * FLOAT32
    return replace(sizes, scratch_bytes=packed) if ring else sizes


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes by purpose; `total` follows the formula, `required` is what is checked."""

    sizes: TensorSizes
    inference_ring: int
    """Slots of the inference ring, wherever it lies."""
    inference_exact: int
    """Inference buffers in the learner's memory, the ring included on a device."""
    inference: int
    """The same with allocation overhead and workspace."""
    replay_storage: int
    """Rows of the replay ring."""
    learner_batches: int
    """Two batches of all updates of an iteration."""
    replay_ingress: int
    """Slots of the ingress, wherever it lies."""
    replay: int
    """Replay ring, batches and, on a device, ingress."""
    replay_workspace: int
    """Workspace of the replay."""
    total: int
    """Inference, replay and workspace."""

    @property
    def shared(self) -> int:
        """Bytes in host memory that both processes map: the ingress, and a ring on the host."""
        return self.replay_ingress + (0 if self.sizes.ring_on_device else self.inference_ring)

    @property
    def required(self) -> int:
        """Bytes of the learner's memory: the device's, or the host's with what is shared."""
        return self.total + (0 if self.sizes.on_device else self.shared)

    @property
    def host(self) -> int:
        """Bytes of the host's memory."""
        return self.shared if self.sizes.on_device else self.required


def memory_budget(sizes: TensorSizes) -> MemoryBudget:
    """The arithmetic of one rank."""
    envs, width = sizes.num_envs, sizes.row_width
    slot = sizes.inference_observation_dim + 1 + sizes.action_dim
    ring = envs * slot * FLOAT32
    exact = envs * slot * FLOAT32 + sizes.scratch_bytes + (ring if sizes.ring_on_device else 0)
    inference = exact + (2 + sizes.ipc_events) * ALLOCATION + _margin(exact)
    storage = sizes.replay_rows * width * FLOAT32
    batches = 2 * sizes.batch_size * sizes.updates_per_step * width * FLOAT32
    ingress = sizes.replay_ingress_depth * sizes.replay_ingress_slot_rows * width * FLOAT32
    replay = storage + batches + (ingress if sizes.on_device else 0)
    workspace = _margin(replay)
    return MemoryBudget(
        sizes=sizes,
        inference_ring=ring,
        inference_exact=exact,
        inference=inference,
        replay_storage=storage,
        learner_batches=batches,
        replay_ingress=ingress,
        replay=replay,
        replay_workspace=workspace,
        total=inference + replay + workspace,
    )


def _margin(exact: int) -> int:
    return max(-(-exact // 10), LEAST_MARGIN)


def check(
    budget: MemoryBudget, available_bytes: int, *, ranks: int = 1, memory: str = "available"
) -> None:
    """Refuse a budget above 0.8 of the available memory.

    Args:
        budget: What one rank needs.
        available_bytes: Free memory of the device, or what the memory cgroup (else the
            machine) has left.
        ranks: Ranks that share that memory; each may plan for an equal part.
        memory: What that memory is, for the message.

    Raises:
        SpecError: at the setting that weighs most, with the whole sum and what would fit.
    """
    limit = usable_bytes(available_bytes, ranks=ranks)
    if budget.required <= limit:
        return
    setting, remedy = _remedy(budget, limit)
    shared_by = f" / {ranks} ranks" if ranks > 1 else ""
    raise SpecError(
        (
            Violation(
                _PATHS[setting],
                f"{getattr(budget.sizes, setting)} needs too much memory: {_sum(budget)} = "
                f"{_readable(budget.required)}, above 0.8 x {_readable(available_bytes)} "
                f"{memory}{shared_by} = {_readable(limit)}; {remedy}",
            ),
        )
    )


def check_shared(budget: MemoryBudget, available_bytes: int, *, ranks: int = 1) -> None:
    """Refuse where what a learner on a device shares with its collector exceeds the host's.

    Args:
        budget: What one rank needs, its learner on a device.
        available_bytes: What the memory cgroup (else the machine) has left.
        ranks: Ranks that share that memory.

    Raises:
        SpecError: at ``training.replay_ingress_slot_rows``, with the sum.
    """
    limit = usable_bytes(available_bytes, ranks=ranks)
    if budget.shared <= limit:
        return
    sizes = budget.sizes
    ring = budget.shared - budget.replay_ingress
    per_row = sizes.replay_ingress_depth * sizes.row_width * FLOAT32
    fits = max(0, limit - ring) // per_row
    remedy = f"at most {fits} would fit" if fits else "lowering it alone is not enough"
    shared_by = f" / {ranks} ranks" if ranks > 1 else ""
    raise SpecError(
        (
            Violation(
                _PATHS["replay_ingress_slot_rows"],
                f"{sizes.replay_ingress_slot_rows} needs too much host memory: "
                f"{_ingress(budget)} + inference ring {_readable(ring)} = "
                f"{_readable(budget.shared)}, above 0.8 x {_readable(available_bytes)} "
                f"available{shared_by} = {_readable(limit)}; {remedy}",
            ),
        )
    )


def process_bytes(*, ranks: int, pods: int = 1) -> int:
    """Memory of the processes themselves, before any tensor."""
    return pods * TORCHRUN_BYTES + ranks * RANK_BYTES


def usable_bytes(available_bytes: int, *, ranks: int = 1) -> int:
    """What a rank may plan for."""
    return available_bytes * USABLE_TENTHS // (10 * ranks)


_PATHS: Final = {
    "replay_rows": "algo.replay_rows",
    "batch_size": "algo.batch_size",
    "updates_per_step": "algo.updates_per_step",
    "num_envs": "algo.num_envs",
    "replay_ingress_depth": "training.replay_ingress_depth",
    "replay_ingress_slot_rows": "training.replay_ingress_slot_rows",
    "inference_slot_capacity": "training.inference_slot_capacity",
}
"""Field of `TensorSizes` -> the key that sets it."""


def lowered(sizes: TensorSizes, setting: str, value: int) -> TensorSizes:
    """The sizes with one setting at `value`; what follows from it goes along."""
    changed = _with(sizes, setting, value)
    if setting != "num_envs":
        return changed
    slot_rows = min(sizes.replay_ingress_slot_rows, value)
    scratch = sizes.scratch_bytes * value // sizes.num_envs
    return replace(changed, replay_ingress_slot_rows=slot_rows, scratch_bytes=scratch)


def _with(sizes: TensorSizes, setting: str, value: int) -> TensorSizes:
    changed: dict[str, Any] = {setting: value}
    return replace(sizes, **changed)


def _remedy(budget: MemoryBudget, limit: int) -> tuple[str, str]:
    """The setting to change and to what: the heaviest that alone can make it fit.

    What a setting weighs is what its least value would save. Where none alone is enough, the
    heaviest of all is named.
    """
    sizes = budget.sizes
    floor = {setting: _least(sizes, setting) for setting in _PATHS}
    # By itself: the ingress counts for its own settings, though fewer environments shrink it.
    alone = {
        setting: memory_budget(_with(sizes, setting, floor[setting])).required for setting in _PATHS
    }
    by_weight = sorted(_PATHS, key=lambda setting: alone[setting])
    for setting in by_weight:
        if memory_budget(lowered(sizes, setting, floor[setting])).required <= limit:
            return setting, f"at most {_largest_fit(sizes, setting, limit)} would fit"
    return by_weight[0], "lowering it alone is not enough"


def _least(sizes: TensorSizes, setting: str) -> int:
    """The least that a setting may be beside the others: replay holds a batch and a tick."""
    least = max(sizes.batch_size, sizes.num_envs) if setting == "replay_rows" else 1
    return min(least, int(getattr(sizes, setting)))


def _largest_fit(sizes: TensorSizes, setting: str, limit: int) -> int:
    """By halving: the sum never falls as a setting grows."""
    low, high = _least(sizes, setting), int(getattr(sizes, setting))
    while high - low > 1:
        middle = (low + high) // 2
        if memory_budget(lowered(sizes, setting, middle)).required <= limit:
            low = middle
        else:
            high = middle
    return low


def _sum(budget: MemoryBudget) -> str:
    sizes, width = budget.sizes, budget.sizes.row_width
    batches = f"2 x {sizes.batch_size} rows x {sizes.updates_per_step} updates"
    parts = [
        f"inference {_readable(budget.inference)}",
        f"replay {sizes.replay_rows} rows x {width} x 4 B = {_readable(budget.replay_storage)}",
        f"batches {batches} x {width} x 4 B = {_readable(budget.learner_batches)}",
        _ingress(budget),
        f"workspace {_readable(budget.replay_workspace)}",
    ]
    if not sizes.on_device:
        parts.append(f"inference ring {_readable(budget.inference_ring)}")
    return " + ".join(parts)


def _ingress(budget: MemoryBudget) -> str:
    sizes = budget.sizes
    rows = f"{sizes.replay_ingress_depth} x {sizes.replay_ingress_slot_rows} rows"
    return f"ingress {rows} x {sizes.row_width} x 4 B = {_readable(budget.replay_ingress)}"


def _readable(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
