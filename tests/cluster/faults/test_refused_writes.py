"""Every kind of write that the operator makes is refused, lost or left unanswered once.

All runs live at the same time; each has one write troubled in one way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from tests.cluster.faults.lab import ALONE, PATIENCE_S, Lab, namespace_of
from tests.support.kubernetes.calls import Selector, Verb
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.faults import Action, Fault, Injection, Refuse

WRITES = {
    "claim": Selector("persistentvolumeclaims", frozenset({Verb.CREATE})),
    "config-map": Selector("configmaps", frozenset({Verb.CREATE})),
    "account": Selector("serviceaccounts", frozenset({Verb.CREATE})),
    "role": Selector("roles", frozenset({Verb.CREATE})),
    "binding": Selector("rolebindings", frozenset({Verb.CREATE})),
    "service": Selector("services", frozenset({Verb.CREATE})),
    "trial": Selector("jobs", frozenset({Verb.CREATE}), writes=False),
    "job": Selector("jobs", frozenset({Verb.CREATE}), writes=True),
    "status": Selector("trainingruns/status", frozenset({Verb.APPLY})),
    "event": Selector("events", frozenset({Verb.CREATE})),
    "no-job": Selector("jobs", frozenset({Verb.DELETE})),
    "no-service": Selector("services", frozenset({Verb.DELETE})),
    "no-config-map": Selector("configmaps", frozenset({Verb.DELETE})),
}
FAULTS: dict[str, Action] = {
    "conflict": Refuse(409),
    "throttled": Refuse(429, retry_after_s=1),
    "error": Refuse(500),
    "timeout": Fault.HANG,
    "lost-answer": Fault.LOSE_ANSWER,
}
CASES = [(write, fault) for write in WRITES for fault in FAULTS]


@dataclass(frozen=True)
class Crowd:
    """A run for each case."""

    lab: Lab
    injections: dict[str, Injection]


def name_of(write: str, fault: str) -> str:
    return f"{fault}-{write}-x"


@pytest.fixture(scope="module")
def crowd(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    """Workers for all, so that none waits for another one's time-out."""
    folder = tmp_path_factory.mktemp("crowd")
    with (
        namespace_of(control_plane.api) as namespace,
        Lab(control_plane, namespace, folder, flags=(*ALONE, "--workers", "64")) as lab,
    ):
        injections = {}
        for write, fault in CASES:
            name = name_of(write, fault)
            selector = replace(WRITES[write], name=f"{name}*")
            injections[name] = lab.proxy.inject(selector, FAULTS[fault], times=1)
        lab.operator.start()
        for name in injections:
            lab.create(name, storage={"size": "1Gi"})
        yield Crowd(lab, injections)


@pytest.mark.parametrize(("write", "fault"), CASES)
def test_one_troubled_write_loses_nothing(crowd: Crowd, write: str, fault: str) -> None:
    name = name_of(write, fault)
    crowd.lab.completes(name)
    crowd.injections[name].wait(timeout_s=PATIENCE_S)
    crowd.lab.witness.check(name)
    assert [crowd.lab.witness.jobs_made(name, attempt) for attempt in (1, 2, 3)] == [1, 1, 0]
