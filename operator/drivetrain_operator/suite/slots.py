"""Members that run at once on one machine: what each of them may count on."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drivetrain_api.machine import VISIBLE
from drivetrain_operator.cli import preflight
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.local.settings import ENV_LAUNCHER, LAUNCHER, LocalSettings
from drivetrain_operator.suite.plan import refusal_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from drivetrain_operator.suite.plan import Checked
    from drivetrain_operator.suite.suite_file import SuiteFile


@dataclass(frozen=True)
class Slots:
    """Places for members that run at once."""

    environments: tuple[Mapping[str, str], ...]
    """Environment of the member in each."""
    notes: tuple[str, ...] = ()
    """What members share, for a person."""


def slots_for(
    file: SuiteFile,
    members: Sequence[Checked],
    storage: Path,
    *,
    count: int,
    settings: LocalSettings,
    machine: preflight.Machine,
) -> Slots:
    """Check the machine for `count` members at once.

    Memory is judged as if each member had its share of what is there now; GPUs that members
    ask for are dealt out, and none is given twice.

    Args:
        file: The suite.
        members: Members that are still to run.
        storage: Where their files are.
        count: How many run at once; fewer members take fewer places.
        settings: How pods become processes.
        machine: What this machine has.

    Raises:
        Refusal: with everything that speaks against it.
    """
    count = max(1, min(count, len(members)))
    shares = [_share(machine, members, slot, count) for slot in range(count)]
    lines = []
    for of_variant in {m.member.variant: m for m in members}.values():
        alike = [m.member for m in members if m.member.variant == of_variant.member.variant]
        found = preflight.violations(
            of_variant.composed, of_variant.task, storage, shares[-1], settings
        )
        lines += [refusal_line(file, violation, alike) for violation in found]
    if lines:
        hint = f"each of {count} members at once has 1/{count} of the machine" if count > 1 else ""
        raise Refusal(lines, f"{hint}: lower --parallel" if hint else "")
    dealt = any(_gpus(m) for m in members)
    environments = tuple(
        {**settings.environment, VISIBLE: ",".join(share.devices.visible)}
        if dealt
        else settings.environment
        for share in shares
    )
    return Slots(environments, tuple(_notes(members, machine, count, dealt=dealt)))


def local_settings() -> LocalSettings:
    """As `drivetrain run` in our environment has them."""
    launcher = shlex.split(os.environ.get(ENV_LAUNCHER, "")) or [LAUNCHER]
    return LocalSettings(launcher=tuple(launcher), environment=dict(os.environ))


def _gpus(checked: Checked) -> int:
    spec = checked.composed
    return spec.topology.nodes * spec.accelerator.gpus_per_node


def _share(
    machine: preflight.Machine, members: Sequence[Checked], slot: int, count: int
) -> preflight.Machine:
    memory = replace(machine.memory, bytes=machine.memory.bytes // count)
    each = max(map(_gpus, members))
    devices = machine.devices
    if each:
        chosen = devices.visible[slot * each : (slot + 1) * each]
        words = f"{devices.searched}; place {slot + 1} of {count} has {len(chosen)}"
        devices = replace(devices, visible=chosen, searched=words)
    return preflight.Machine(memory, devices)


def _notes(
    members: Sequence[Checked], machine: preflight.Machine, count: int, *, dealt: bool
) -> list[str]:
    if count == 1:
        return []
    cpus = len(os.sched_getaffinity(0))
    ranks = max(m.composed.topology.world_size for m in members)
    notes = []
    if count * ranks * 2 > cpus:
        notes.append(
            f"{count} members with {ranks} rank(s) each, two processes a rank, share {cpus} CPUs"
        )
    there = len(machine.devices.visible)
    if there and not dealt and any(m.composed.training.device != "cpu" for m in members):
        notes.append(
            f"{count} members share {there} GPU(s): accelerator.gpus_per_node gives each its own"
        )
    return notes
