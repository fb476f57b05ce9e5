"""Figures over the ranks of a group, in a number of collectives that no key adds to.

A header of fixed size tells each rank whether all hold the same keys; if not, the keys are
gathered once as bytes. Then sums and counts travel in one summing all-reduce, extremes in
one maximum (a minimum as the maximum of what is negated): three collectives with equal
keys, four otherwise, one where nobody recorded anything.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from drivetrain_trainer.stats.moments import Moments
from drivetrain_trainer.stats.reduce_type import ReduceType, ReduceTypeConflictError, StatsError
from drivetrain_trainer.stats.window import Entry, claim_outputs, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HASH_BYTES = 16
_HEADER = 3
"""Two int64 of the layout's hash, and the length of its bytes."""

Layout = dict[str, ReduceType]
"""Keys in order, with their reduce types."""


def reduce_and_name(
    drained: Sequence[Mapping[str, Entry]], group: dist.ProcessGroup | None
) -> dict[str, float]:
    """What an export gives for the records of some trackers.

    Args:
        drained: full key -> records, a mapping a tracker.
        group: ranks that export together; None for this process alone.

    Raises:
        ReduceTypeConflictError: on every rank alike.
    """
    entries, problem = _merged(drained)
    layout = {key: entries[key].reduce_type for key in sorted(entries)}
    if group is None or dist.get_world_size(group) == 1:
        if problem is not None:
            raise ReduceTypeConflictError(problem)
        moments = resolve(entries)
    else:
        device = collective_device(group)
        layout = _agreed(layout, problem, group, device)
        moments = _reduced(resolve(entries), list(layout), group, device)
    results: dict[str, float] = {}
    for key, reduce_type in layout.items():
        results |= moments[key].figures(key, reduce_type)
    return dict(sorted(results.items()))


def collective_device(group: dist.ProcessGroup | None) -> torch.device:
    """Where host values must lie to travel through the group."""
    if "gloo" in str(dist.get_backend(group)):
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def _merged(drained: Sequence[Mapping[str, Entry]]) -> tuple[dict[str, Entry], str | None]:
    """All trackers' records by key, and what is wrong between them, which every rank must hear."""
    if len(drained) == 1:  # a tracker's own window has seen to its names
        return dict(drained[0]), None
    entries: dict[str, Entry] = {}
    owners: dict[str, str] = {}
    for one in drained:
        for key, entry in one.items():
            if key in entries:
                return {}, f"two trackers hold {key!r}: a scope of one has the name of the other"
            try:
                claim_outputs(owners, key, entry.reduce_type)
            except ReduceTypeConflictError as error:
                return {}, str(error)
            entries[key] = entry
    return entries, None


def _agreed(
    layout: Layout, problem: str | None, group: dist.ProcessGroup, device: torch.device
) -> Layout:
    """The keys of all ranks; one collective where they are equal, else two."""
    text = json.dumps({"keys": list(layout.items()), "problem": problem}).encode()
    digest = hashlib.blake2b(text, digest_size=_HASH_BYTES).digest()
    halves = [int.from_bytes(digest[at : at + 8], signed=True) for at in (0, 8)]
    headers = _gathered(torch.tensor([*halves, len(text)], dtype=torch.int64), group, device)
    if problem is None and all(torch.equal(one, headers[0]) for one in headers):
        return layout
    lengths = [int(one[2]) for one in headers]
    padded = torch.zeros(max(lengths), dtype=torch.uint8)
    padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    texts = [
        json.loads(bytes(one[:length].tolist()))
        for one, length in zip(_gathered(padded, group, device), lengths, strict=True)
    ]
    return _united(texts)


def _united(texts: Sequence[Mapping[str, object]]) -> Layout:
    """One layout of all ranks' keys; every rank raises what is wrong, in the same words."""
    ranks_of: dict[str, dict[ReduceType, list[int]]] = {}
    for rank, text in enumerate(texts):
        if text["problem"] is not None:
            raise ReduceTypeConflictError(f"rank {rank} of the group: {text['problem']}")
        keys = text["keys"]
        if not isinstance(keys, list):
            raise StatsError(f"rank {rank} of the group sent no list of stats: {keys!r}")
        for key, name in keys:
            ranks_of.setdefault(key, {}).setdefault(ReduceType(name), []).append(rank)
    owners: dict[str, str] = {}
    layout: Layout = {}
    for key in sorted(ranks_of):
        types = ranks_of[key]
        if len(types) > 1:
            who = "; ".join(f"{kind.name} on ranks {ranks}" for kind, ranks in types.items())
            raise ReduceTypeConflictError(f"stat {key!r} has different reduce types: {who}")
        (layout[key],) = types
        claim_outputs(owners, key, layout[key])
    return layout


def _reduced(
    own: Mapping[str, Moments], keys: Sequence[str], group: dist.ProcessGroup, device: torch.device
) -> dict[str, Moments]:
    """Every key's figures over all ranks, in two collectives.

    A maximum of floats is undefined at NaN, so that NaN extremes travel as a count beside
    the sums and stand as -inf in the maximum.
    """
    if not keys:
        return {}
    none = Moments()
    moments = [own.get(key, none) for key in keys]
    broken = [math.isnan(one.least) for one in moments]
    sums = torch.tensor(
        [
            [one.total for one in moments],
            [one.count for one in moments],
            [float(nan) for nan in broken],
        ],
        dtype=torch.float64,
    )
    extremes = torch.tensor(
        [
            [-math.inf if nan else one.greatest for one, nan in zip(moments, broken, strict=True)],
            [-math.inf if nan else -one.least for one, nan in zip(moments, broken, strict=True)],
        ],
        dtype=torch.float64,
    )
    totals, counts, nans = _all_reduced(sums, dist.ReduceOp.SUM, group, device)
    greatest, negated = _all_reduced(extremes, dist.ReduceOp.MAX, group, device)
    return {
        key: Moments(total, count, math.nan if nan else -least, math.nan if nan else great)
        for key, total, count, nan, great, least in zip(
            keys, totals, counts, nans, greatest, negated, strict=True
        )
    }


def _gathered(mine: Tensor, group: dist.ProcessGroup, device: torch.device) -> list[Tensor]:
    on_device = mine.to(device)
    received = [torch.empty_like(on_device) for _ in range(dist.get_world_size(group))]
    dist.all_gather(received, on_device, group=group)
    return [one.cpu() for one in received]


def _all_reduced(
    values: Tensor, op: dist.ReduceOp.RedOpType, group: dist.ProcessGroup, device: torch.device
) -> list[list[float]]:
    on_device = values.to(device)
    dist.all_reduce(on_device, op=op, group=group)
    rows: list[list[float]] = on_device.cpu().tolist()
    return rows
