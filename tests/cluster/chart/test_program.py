"""The operator itself, with the environment and the account that the chart gives it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cluster.chart.conftest import TRAINING_RUN, training_run
from tests.support.chart import CHART, Helm, Object, environment
from tests.support.kubernetes.api import Api, wait_for
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.credentials import free_ports
from tests.support.kubernetes.processes import Process

READY = (CHART / "files" / "ready.py").read_text(encoding="utf-8")
RELEASE = "program"


@pytest.fixture
def start(
    plane: ControlPlane, api: Api, helm: Helm, namespace: str, tmp_path: Path
) -> Iterator[Callable[[Object], tuple[Process, str]]]:
    """Install the chart beside the test's runs and start what its Deployment would."""
    started: list[Process] = []
    place = ("--namespace", namespace)

    def begin(values: Object) -> tuple[Process, str]:
        health, metrics = free_ports(2)
        ports = {"health": {"port": health}, "metrics": {"port": metrics}}
        given = {"crds": {"install": False}, **values, **ports}
        helm.run("install", RELEASE, str(CHART), *place, values=given)
        variables = environment(helm.template(given, release=RELEASE, namespace=namespace))
        variables["DRIVETRAIN_OPERATOR_LEASE_NAMESPACE"] = namespace  # the pod's own
        name = f"{RELEASE}-drivetrain"
        wait_for(lambda: api.find("v1", "ServiceAccount", name, namespace), "account")
        token = plane.account_token(namespace, name)
        variables["KUBECONFIG"] = str(plane.write_kubeconfig(tmp_path / "operator", token=token))
        variables["PATH"] = os.environ["PATH"]
        process = Process(
            "operator",
            [Path(sys.executable).with_name("drivetrain-operator")],
            tmp_path / "operator.log",
            variables,
        )
        process.start()
        started.append(process)
        return process, f"http://127.0.0.1:{health}/readyz"

    yield begin
    for process in started:
        process.stop()
    helm.run("uninstall", RELEASE, *place)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("whole", [True, False], ids=["cluster", "namespace"])
def test_it_gets_ready_and_works(
    start: Callable[[Object], tuple[Process, str]], api: Api, namespace: str, whole: bool
) -> None:
    process, url = start({} if whole else {"namespaces": [namespace]})

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", READY, url, "30"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "ready: ok\n"), done.stderr + process.tail(40)

    api.create(training_run("walk"), namespace=namespace)
    wait_for(lambda: api.find("batch/v1", "Job", "walk-a1", namespace), f"Job\n{process.tail(40)}")
    job = api.get("batch/v1", "Job", "walk-a1", namespace)
    (trainer,) = job["spec"]["template"]["spec"]["containers"]
    assert trainer["image"].startswith("drivetrain-trainer:")
    status = api.get(*TRAINING_RUN, "walk", namespace)["status"]
    assert status["attempt"] == 1
    process.check()
    assert "forbidden" not in process.log.read_text(encoding="utf-8").lower()
