"""Members at once: what each may count on, and what is refused rather than shared."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from suite_files import TEMPLATE

from drivetrain_api.machine import CudaDevices
from drivetrain_api.memory import AvailableMemory
from drivetrain_operator.cli.preflight import Machine
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.local.settings import LocalSettings
from drivetrain_operator.suite.plan import check, outline
from drivetrain_operator.suite.slots import Slots, slots_for
from drivetrain_operator.suite.suite_file import SuiteFile

GIB = 1 << 30
SETTINGS = LocalSettings(launcher=("true",), environment={"A": "b"})
ON_GPUS = {**TEMPLATE, "training": {"totalEnvSteps": 400}, "accelerator": {"gpusPerNode": 2}}


def slots(
    file: SuiteFile, count: int, *, memory: int = 64 * GIB, gpus: int = 0, settings: Any = SETTINGS
) -> Slots:
    devices = CudaDevices(tuple(str(i) for i in range(gpus)), f"{gpus} device(s)")
    machine = Machine(AvailableMemory(memory, "a test"), devices)
    members = check(file, outline(file), "x")
    return slots_for(file, members, Path.cwd(), count=count, settings=settings, machine=machine)


def test_memory_is_judged_by_the_share_of_each(suite_file: Callable[..., SuiteFile]) -> None:
    file = suite_file(seeds=4)
    assert len(slots(file, 1, memory=3 * GIB).environments) == 1
    with pytest.raises(Refusal) as refused:
        slots(file, 4, memory=3 * GIB)
    (line,) = refused.value.lines
    assert "members swing-s0, swing-s1, swing-s2 and 1 more: algo." in line
    assert "available is 768 MiB" in line
    assert refused.value.hint == (
        "each of 4 members at once has 1/4 of the machine: lower --parallel"
    )


def test_fewer_members_take_fewer_places(suite_file: Callable[..., SuiteFile]) -> None:
    assert len(slots(suite_file(seeds=2), 8).environments) == 2


def test_gpus_that_members_ask_for_are_dealt_out(suite_file: Callable[..., SuiteFile]) -> None:
    file = suite_file(seeds=3, template=ON_GPUS)
    found = slots(file, 2, gpus=4)
    assert [e["CUDA_VISIBLE_DEVICES"] for e in found.environments] == ["0,1", "2,3"]
    assert all(e["A"] == "b" for e in found.environments)
    with pytest.raises(Refusal, match="place 2 of 2 has 1"):
        slots(file, 2, gpus=3)


def test_what_is_shared_is_told(
    suite_file: Callable[..., SuiteFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    file = suite_file(seeds=3, template={**TEMPLATE, "training": {"totalEnvSteps": 400}})
    assert slots(file, 2, gpus=1).notes == (
        "2 members with 1 rank(s) each, two processes a rank, share 2 CPUs",
        "2 members share 1 GPU(s): accelerator.gpus_per_node gives each its own",
    )
    assert slots(file, 1, gpus=1).notes == ()


def test_a_missing_launcher_is_told_once_a_variant(suite_file: Callable[..., SuiteFile]) -> None:
    missing = LocalSettings(launcher=("no-such-launcher",), environment={})
    with pytest.raises(Refusal) as refused:
        slots(suite_file(seeds=2), 1, settings=missing)
    assert "'no-such-launcher' is not to be found in PATH=" in refused.value.lines[0]
