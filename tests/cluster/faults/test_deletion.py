"""Runs and namespaces are deleted whenever and whoever is away; nothing is left behind."""

from __future__ import annotations

import signal

import pytest
from tests.cluster.faults.lab import PATIENCE_S, Lab, namespace_of
from tests.support.kubernetes.api import Api, wait_for
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.simulated_kubelet import Plan, runs_on


def never_starts(_: str, __: int) -> Plan:
    return Plan(starts=False)


@pytest.mark.parametrize("absent", [False, True], ids=["operator", "no-operator"])
def test_all_children_go_with_their_run(own_lab: Lab, absent: bool) -> None:
    """One that waits, one that runs, one that is between two attempts, one that is over."""
    lab = own_lab
    lab.create_with(never_starts, "waits")
    lab.create_with(runs_on, "runs", topology={"nodes": 2}, storage={"size": "1Gi"})
    lab.create("backs-off", restart={"maxRestarts": 3, "backoffSeconds": 600})
    lab.create("is-over")
    lab.phase("waits", "Pending", 1)
    lab.phase("runs", "Running")
    lab.phase("backs-off", "Restarting")
    lab.completes("is-over")
    if absent:
        lab.operator.stop(signal.SIGKILL)
    for name in ("waits", "runs", "backs-off", "is-over"):
        lab.delete(name)
    for name in ("waits", "runs", "backs-off", "is-over"):
        lab.gone(name)


@pytest.mark.nightly  # its controller takes its time where pods are to end: 50 s
@pytest.mark.parametrize("absent", [False, True], ids=["operator", "no-operator"])
def test_a_namespace_goes_with_all_that_runs_in_it(
    control_plane: ControlPlane,
    api: Api,
    tmp_path_factory: pytest.TempPathFactory,
    absent: bool,
) -> None:
    folder = tmp_path_factory.mktemp("namespace")
    with namespace_of(api) as namespace, Lab(control_plane, namespace, folder) as lab:
        lab.operator.start()
        # The namespace's controller waits for as long as pods may take, before it looks again.
        soon = {"gracePeriodSeconds": 5}
        lab.create_with(never_starts, "waits", **soon)
        lab.create_with(runs_on, "runs", topology={"nodes": 2}, storage={"size": "1Gi"}, **soon)
        lab.create("is-over", **soon)
        lab.phase("waits", "Pending", 1)
        lab.phase("runs", "Running")
        lab.completes("is-over")
        if absent:
            lab.operator.stop(signal.SIGKILL)
        api.delete("v1", "Namespace", namespace)
        wait_for(lambda: api.find("v1", "Namespace", namespace) is None, "removal", PATIENCE_S)
        if not absent:
            assert lab.operator.probe("livez")[0] == 200


def test_a_run_of_the_same_name_waits_until_the_old_one_is_gone(lab: Lab) -> None:
    """Nothing of the old one is taken for the new one's, and the pods of both never meet."""
    lab.create_with(runs_on, "again", topology={"nodes": 2})
    old = lab.phase("again", "Running")
    lab.operator.process.pause()  # it sees both at once
    lab.delete("again")
    lab.create("again")
    lab.operator.process.resume()
    status = lab.until(
        "again",
        lambda s: s.get("phase") == "Running" and s["jobUid"] != old["jobUid"],
        "phase Running of the new run",
    )
    assert (status["attempt"], status["restarts"], status["history"]) == (1, 0, [])
    lab.witness.check("again")


def test_a_deletion_between_two_attempts_starts_none(lab: Lab) -> None:
    lab.create("between", restart={"maxRestarts": 3, "backoffSeconds": 2})
    lab.phase("between", "Restarting")
    lab.delete("between")
    lab.gone("between")
    lab.create("after")
    lab.completes("after")  # long enough for the back-off to end
    assert lab.witness.jobs_made("between", 2) == 0
    assert not lab.children("between")
