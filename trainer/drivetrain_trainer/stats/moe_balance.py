"""How evenly the routers of a mixture-of-experts model load their experts: ``moe_balance/``.

A router is any module of which a forward pass yields how often each expert was chosen. What is
counted is the load that was executed: padding that was packed in counts, and what a capacity
limit dropped does not, if the router's own counts say so. The sum may therefore differ from
the tokens of ``train_perf/``.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
import torch.distributed as dist

from drivetrain_trainer.stats.collective import collective_device

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from torch import Tensor, nn
    from torch.distributed import ProcessGroup
    from torch.utils.hooks import RemovableHandle

SCOPE: Final = "moe_balance"
TABLE_NAME: Final = f"{SCOPE}/expert_loads"
INDEX_COLUMNS: Final = ("layer", "expert")
COLUMNS: Final = (*INDEX_COLUMNS, "tokens", "load_percent")

ExpertCounts: TypeAlias = "Callable[[Any], Tensor]"
"""Output of a router's forward pass -> (experts,) integers: times that each was chosen."""


class MoeBalanceError(ValueError):
    """Routers that contradict each other; the message names the layer."""


@dataclass(frozen=True)
class LayerLoad:
    """What the experts of one layer were given, over all microbatches and ranks."""

    layer: int
    """From 0, unique in the model also where pipeline stages divide it."""
    counts: tuple[int, ...]
    """Assignments of each expert; a position routed to k experts is k assignments."""

    @property
    def max_over_ideal(self) -> float:
        """The largest load over an even share: 1 is balanced; 0 without assignments."""
        total = sum(self.counts)
        return max(self.counts) * len(self.counts) / total if total else 0.0

    def rows(self) -> Iterator[tuple[int, int, int, float]]:
        """Layer, expert, assignments, percent of the layer's."""
        total = sum(self.counts)
        for expert, count in enumerate(self.counts):
            yield self.layer, expert, count, 100.0 * count / total if total else 0.0


@dataclass(frozen=True)
class ExpertLoads:
    """All layers, in their order."""

    layers: tuple[LayerLoad, ...]

    def scalars(self) -> dict[str, float]:
        """One figure a layer, for every backend."""
        return {
            f"{SCOPE}/layer_{load.layer}/max_over_ideal": load.max_over_ideal
            for load in self.layers
        }

    def rows(self) -> tuple[tuple[int, int, int, float], ...]:
        """Rows of `COLUMNS`, for backends that hold tables."""
        return tuple(row for load in self.layers for row in load.rows())


class MoeBalance:
    """Counts assignments on their device until an export; without a router it has no metrics.

    Args:
        group: Ranks whose counts are added up, all parallel dimensions together; None for one.
    """

    def __init__(self, group: ProcessGroup | None = None) -> None:
        self._group = group
        self._experts: dict[int, int] = {}
        self._counts: dict[int, Tensor] = {}
        self._handles: list[RemovableHandle] = []
        self._forwards = 0

    def attach(self, router: nn.Module, *, layer: int, experts: int, counts: ExpertCounts) -> None:
        """Count what `router` does in training forward passes from now on.

        Args:
            router: Its output goes to `counts`.
            layer: Number in the whole model, from 0.
            experts: Routed experts; a shared one is none of them.
            counts: See `counts_of_indices` and `counts_of_map`.

        Raises:
            MoeBalanceError: The layer is known on this rank, or a number is out of range.
        """
        self.declare(layer, experts)

        def count(module: nn.Module, _arguments: object, output: object) -> None:
            if self._forwards and module.training:
                self.add(layer, counts(output))

        self._handles.append(router.register_forward_hook(count))

    def attach_all(
        self,
        model: nn.Module,
        routers: Mapping[type[nn.Module], Callable[[nn.Module], tuple[int, ExpertCounts]]],
        *,
        first_layer: int = 0,
        exclude: Collection[str] = (),
    ) -> int:
        """Attach every router in `model` that is of a supported type, in the model's order.

        Args:
            model: Or one pipeline stage of it.
            routers: By type: a router -> its number of experts, and its counts.
            first_layer: Number of the first one found, so that stages go on counting.
            exclude: Dotted names within which routers are left out, such as additional
                multi-token prediction.

        Returns:
            Routers attached; 0 for a model without supported ones, which has no metrics.
        """
        layer = first_layer
        for name, module in model.named_modules():
            make = next(
                (found for kind, found in routers.items() if isinstance(module, kind)), None
            )
            if make is None or any(f"{name}.".startswith(f"{part}.") for part in exclude):
                continue
            experts, counts = make(module)
            self.attach(module, layer=layer, experts=experts, counts=counts)
            layer += 1
        return layer - first_layer

    def detach(self) -> None:
        """Take all hooks off; what was counted stays for the next export."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @contextmanager
    def training_forward(self) -> Iterator[None]:
        """Count the routers' forward passes inside, as one microbatch; nothing without gradients.

        Leave it before the backward pass: what activation checkpointing computes again there
        is not counted then.
        """
        if not torch.is_grad_enabled():
            yield
            return
        self._forwards += 1
        try:
            yield
        finally:
            self._forwards -= 1

    def declare(self, layer: int, experts: int) -> None:
        """Make a layer known that `add` will be called for by hand; as `attach` does."""
        if layer < 0 or experts < 1:
            raise MoeBalanceError(
                f"layer {layer} with {experts} experts: from 0 on, with at least 1 expert"
            )
        if layer in self._experts:
            raise MoeBalanceError(f"layer {layer} has a router already: numbers are unique")
        self._experts[layer] = experts

    @torch.no_grad()
    def add(self, layer: int, counts: Tensor) -> None:
        """Add assignments of a training forward pass; the host does not wait.

        Args:
            layer: One that was declared.
            counts: (experts,) integers, on any device.
        """
        expected = (self._experts.get(layer, -1),)
        if counts.shape != expected or counts.is_floating_point():
            raise MoeBalanceError(
                f"counts of layer {layer} are {counts.dtype} {tuple(counts.shape)}, "
                f"must be integers {expected}"
            )
        total = self._counts.get(layer)
        if total is None:
            self._counts[layer] = counts.detach().to(torch.int64, copy=True)
        else:
            total += counts

    def export(self) -> ExpertLoads:
        """Loads since the last call, the same on every rank; collective.

        Counts are added up first, then set against each other.

        Raises:
            MoeBalanceError: on every rank, if two have different numbers of experts in a layer.
        """
        counts, self._counts = self._counts, {}
        if self._group is None:
            return _loads(self._experts, _totals(self._experts, counts))
        experts = self._agreed()
        totals = _totals(experts, counts).to(collective_device(self._group))
        dist.all_reduce(totals, group=self._group)
        return _loads(experts, totals)

    def _agreed(self) -> dict[int, int]:
        """Every rank's layers: pipeline stages hold different ones."""
        gathered: list[dict[int, int]] = [{} for _ in range(dist.get_world_size(self._group))]
        dist.all_gather_object(gathered, self._experts, group=self._group)
        agreed: dict[int, int] = {}
        for one in gathered:
            for layer, experts in one.items():
                if agreed.setdefault(layer, experts) != experts:
                    raise MoeBalanceError(
                        f"layer {layer} has {agreed[layer]} experts on one rank, "
                        f"{experts} on another"
                    )
        return dict(sorted(agreed.items()))


def counts_of_indices(indices: Tensor, experts: int) -> Tensor:
    """Times that each expert is named in `indices` (...) int64: int64 (experts,).

    A position's k choices are k entries. Unlike a bincount it does not make the host wait.
    """
    flat = indices.flatten()
    return torch.zeros(experts, dtype=torch.int64, device=indices.device).scatter_add_(
        0, flat, torch.ones_like(flat)
    )


def counts_of_map(routing_map: Tensor) -> Tensor:
    """Times that each expert is chosen in a map (positions, experts) bool: int64 (experts,).

    A map that a capacity limit was applied to gives what was executed.
    """
    return routing_map.sum(0, dtype=torch.int64)


def _totals(experts: Mapping[int, int], counts: Mapping[int, Tensor]) -> Tensor:
    """All layers' counts one after the other, int64, on one of their devices."""
    device = next((one.device for one in counts.values()), torch.device("cpu"))
    parts = [
        counts[layer].to(device)
        if layer in counts
        else torch.zeros(number, dtype=torch.int64, device=device)
        for layer, number in sorted(experts.items())
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)


def _loads(experts: Mapping[int, int], totals: Tensor) -> ExpertLoads:
    """The layers' loads; waits for the device, once."""
    numbers = iter(totals.tolist())
    return ExpertLoads(
        tuple(
            LayerLoad(layer, tuple(islice(numbers, number)))
            for layer, number in sorted(experts.items())
        )
    )
