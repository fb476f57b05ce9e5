"""The API server and etcd go away and come back; watches die without a word."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.faults.lab import ALONE, Lab, namespace_of
from tests.support.kubernetes.api import wait_for
from tests.support.kubernetes.calls import EVERY_WATCH
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.simulated_kubelet import Plan, fails_once

WATCHED = 5
"""Kinds that the operator follows."""


@pytest.fixture
def frail_lab(frail_plane: ControlPlane, tmp_path: Path) -> Iterator[Lab]:
    with (
        namespace_of(frail_plane.api) as namespace,
        Lab(frail_plane, namespace, tmp_path / "lab") as made,
    ):
        made.operator.start()
        yield made


def start_some(lab: Lab, prefix: str) -> list[str]:
    names = [f"{prefix}-{number}" for number in range(4)]
    for name in names:
        lab.create(name)
    return names


def test_the_api_server_is_restarted_while_runs_begin_and_end(
    frail_lab: Lab, frail_plane: ControlPlane
) -> None:
    lab = frail_lab
    names = start_some(lab, "early")
    frail_plane.api_server.restart()
    names += start_some(lab, "late")
    lab.phase("early-0", "Complete")
    frail_plane.api_server.restart()
    for name in names:
        lab.completes(name)
    assert lab.operator.process.running, "nobody had to start it again"
    assert lab.operator.probe("livez")[0] == 200


@pytest.mark.parametrize("seconds", [3, pytest.param(20, marks=pytest.mark.nightly)])
def test_etcd_stands_still(frail_lab: Lab, frail_plane: ControlPlane, seconds: int) -> None:
    lab = frail_lab
    names = start_some(lab, "before")
    with frail_plane.etcd.paused():
        time.sleep(seconds)  # that long is the fault
    names += start_some(lab, "after")
    for name in names:
        lab.completes(name)
    assert lab.operator.process.running


def held(told: list[bool], run: str, attempt: int) -> Plan:
    """As `fails_once`, once that is told."""
    return fails_once(run, attempt) if told else Plan(code=None, steps=100)


def test_all_watches_die_without_a_word(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The pod fails, a run comes and another is deleted: none of it is told to the operator."""
    told: list[bool] = []
    flags = (*ALONE, "--watch-silence-seconds", "5")
    with Lab(
        control_plane,
        namespace,
        tmp_path / "lab",
        flags=flags,
        plans=lambda run, attempt: held(told, run, attempt),
    ) as lab:
        lab.operator.start()
        for name in ("goes-on", "is-deleted"):
            lab.create(name)
            lab.phase(name, "Running")
        wait_for(lambda: len(lab.proxy.open_watches) >= WATCHED, "watches")
        assert lab.proxy.silence_watches(EVERY_WATCH) >= WATCHED
        told.append(True)
        lab.create("comes")
        lab.delete("is-deleted")
        for name in ("goes-on", "comes"):
            lab.completes(name)
        lab.gone("is-deleted")
        assert lab.operator.metric("drivetrain_runs") == 2
