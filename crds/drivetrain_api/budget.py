"""Memory of the tensor runtime: the arithmetic, and the refusal that shows it.

All sizes are per rank and in bytes of float32. With N environments, B batch rows, U updates
an iteration, o observation, o' inference observation, a action and c critic-only values:

- a replay row holds W = 2 o + a + 3 + 2 c values;
- the inference ring holds N x capacity x (o' + 1 + a) values;
- the replay holds its rows, two batches of B x U rows, and the ingress slots beside it.

On a device everything lies in its memory. On the host the ring and the ingress lie in
shared memory that counts against the same limit (the memory cgroup) as the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.trainingrun import TrainingRunSpec

FLOAT32: Final = 4
KIB: Final = 1 << 10
MIB: Final = 1 << 20
ALLOCATION: Final = 64 * KIB
"""Rounding of one device allocation."""
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
    critic_observation_dim: int = 0
    scratch_bytes: int = 0

    @property
    def row_width(self) -> int:
        """Values of a replay row, W."""
        return 2 * self.observation_dim + self.action_dim + 3 + 2 * self.critic_observation_dim


def sizes_of(
    spec: TrainingRunSpec, *, observation_dim: int, action_dim: int, on_device: bool
) -> TensorSizes:
    """Sizes of a composed spec for an environment without critic-only observations."""
    algo, training = spec.algo, spec.training
    return TensorSizes(
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
    )


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
        """Bytes of ring and ingress in host shared memory; none on a device."""
        return 0 if self.sizes.on_device else self.inference_ring + self.replay_ingress

    @property
    def required(self) -> int:
        """Bytes that one rank needs of the memory that is checked."""
        return self.total + self.shared


def memory_budget(sizes: TensorSizes) -> MemoryBudget:
    """The arithmetic of one rank."""
    envs, width, capacity = sizes.num_envs, sizes.row_width, sizes.inference_slot_capacity
    slot = sizes.inference_observation_dim + 1 + sizes.action_dim
    ring = envs * capacity * slot * FLOAT32
    exact = envs * slot * FLOAT32 + sizes.scratch_bytes + (ring if sizes.on_device else 0)
    allocations = 2 + (3 * capacity if sizes.on_device else 0)
    inference = exact + allocations * ALLOCATION + _margin(exact)
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


def check(budget: MemoryBudget, available_bytes: int, *, ranks: int = 1) -> None:
    """Refuse a budget above 0.8 of the available memory.

    Args:
        budget: What one rank needs.
        available_bytes: Free memory of the device, or what the memory cgroup (else the
            machine) has left.
        ranks: Ranks that share that memory; each may plan for an equal part.

    Raises:
        SpecError: at the setting that weighs most, with the whole sum and what would fit.
    """
    limit = usable_bytes(available_bytes, ranks=ranks)
    if budget.required <= limit:
        return
    setting = heaviest_setting(budget)
    shared_by = f" / {ranks} ranks" if ranks > 1 else ""
    raise SpecError(
        (
            Violation(
                f"algo.{setting}",
                f"{getattr(budget.sizes, setting)} needs too much memory: {_sum(budget)} = "
                f"{_readable(budget.required)}, above 0.8 x {_readable(available_bytes)} "
                f"available{shared_by} = {_readable(limit)}{_remedy(budget, setting, limit)}",
            ),
        )
    )


def process_bytes(*, ranks: int, pods: int = 1) -> int:
    """Memory of the processes themselves, before any tensor."""
    return pods * TORCHRUN_BYTES + ranks * RANK_BYTES


def usable_bytes(available_bytes: int, *, ranks: int = 1) -> int:
    """What a rank may plan for."""
    return available_bytes * USABLE_TENTHS // (10 * ranks)


def heaviest_setting(budget: MemoryBudget) -> str:
    """The key of ``algo`` behind the largest part of the budget."""
    weights = {
        "replay_rows": budget.replay_storage,
        "batch_size": budget.learner_batches,
        "num_envs": budget.required
        - budget.replay_storage
        - budget.learner_batches
        - budget.replay_workspace,
    }
    return max(weights, key=lambda name: weights[name])


def _remedy(budget: MemoryBudget, setting: str, limit: int) -> str:
    """The largest value of `setting` alone that would fit; nothing where none does."""
    low, high = 0, int(getattr(budget.sizes, setting))
    while high - low > 1:
        middle = (low + high) // 2
        if memory_budget(_with(budget.sizes, setting, middle)).required <= limit:
            low = middle
        else:
            high = middle
    return f"; at most {low} would fit" if low else "; lowering it alone is not enough"


def _with(sizes: TensorSizes, setting: str, value: int) -> TensorSizes:
    if setting == "replay_rows":
        return replace(sizes, replay_rows=value)
    if setting == "batch_size":
        return replace(sizes, batch_size=value)
    slot_rows = min(sizes.replay_ingress_slot_rows, value)
    return replace(sizes, num_envs=value, replay_ingress_slot_rows=slot_rows)


def _sum(budget: MemoryBudget) -> str:
    sizes, width = budget.sizes, budget.sizes.row_width
    batches = f"2 x {sizes.batch_size} rows x {sizes.updates_per_step} updates"
    ingress = f"{sizes.replay_ingress_depth} x {sizes.replay_ingress_slot_rows} rows"
    parts = [
        f"inference {_readable(budget.inference)}",
        f"replay {sizes.replay_rows} rows x {width} x 4 B = {_readable(budget.replay_storage)}",
        f"batches {batches} x {width} x 4 B = {_readable(budget.learner_batches)}",
        f"ingress {ingress} x {width} x 4 B = {_readable(budget.replay_ingress)}",
        f"workspace {_readable(budget.replay_workspace)}",
    ]
    if not sizes.on_device:
        parts.append(f"inference ring {_readable(budget.inference_ring)}")
    return " + ".join(parts)


def _readable(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
