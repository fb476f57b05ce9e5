"""Soaks on the node: a run that holds out, and one whose user code loses descriptors."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import yaml
from tests.e2e.cluster.conftest import Release
from tests.e2e.cluster.test_smoke import RESOURCES, SPEC
from tests.support.kubernetes.api import Object, wait_for
from tests.support.kubernetes.kubectl import Kubectl

from drivetrain_api.artifacts.soak import MonitorFailure
from drivetrain_api.status import SoakVerdict

pytestmark = pytest.mark.e2e

SECONDS = 20
"""Of training; a judged sample a second is left from four fifths of them."""
FOLDER = "/user"
LEAK = """
import os
import threading
import time


def leak():
    while True:
        os.dup(0)
        time.sleep(0.05)


threading.Thread(target=leak, daemon=True).start()
"""
"""What Python starts with in each process: twenty descriptors a second and process."""
CODE: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "code"},
    "data": {"sitecustomize.py": LEAK},
}


def soaked(name: str, trainer: dict[str, Any], *volumes: Object) -> Object:
    """A run under a short soak."""
    spec = SPEC | {
        "training": {"totalEnvSteps": 1_000_000_000},
        "checkpoint": {"interval": 1_000_000_000},
        "soak": {
            "durationSeconds": SECONDS,
            "sampleSeconds": 1,
            "warmUpSeconds": 0,
            "throughputDecayPercent": 99,
        },
        "podTemplate": {
            "spec": {
                "containers": [{"name": "trainer", "resources": RESOURCES, **trainer}],
                "volumes": list(volumes),
            }
        },
    }
    return {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": name},
        "spec": spec,
    }


RUNS = (
    soaked("sound", {}),
    soaked(
        "leaky",
        {
            "env": [{"name": "PYTHONPATH", "value": FOLDER}],
            "volumeMounts": [{"name": "code", "mountPath": FOLDER, "readOnly": True}],
        },
        {"name": "code", "configMap": {"name": "code"}},
    ),
)


def ended(kubectl: Kubectl, name: str) -> dict[str, Any] | None:
    """The status that `kubectl get trun -o yaml` shows, once the run is over."""
    status: dict[str, Any] = yaml.safe_load(kubectl("get", "trun", name, "-o", "yaml"))["status"]
    assert status.get("phase") != "Failed", json.dumps(status, indent=1)
    return status if status.get("phase") == "Complete" and "soak" in status else None


def test_the_status_holds_the_verdict_of_a_sound_run_and_of_one_that_leaks(
    release: Release, namespace: Kubectl
) -> None:
    del release  # the operator works
    namespace.apply(CODE, *RUNS)
    sound, leaky = (
        wait_for(partial(ended, namespace, name), f"end of {name}", 300.0, 0.5)
        for name in ("sound", "leaky")
    )

    told = json.dumps([sound["soak"], leaky["soak"]], indent=1)
    passed, failed = sound["soak"], leaky["soak"]
    assert passed["verdict"] == SoakVerdict.PASSED, told
    assert passed.keys().isdisjoint({"failureClassification", "failureReason"}), told
    assert failed["verdict"] == SoakVerdict.FAILED, told
    assert failed["failureClassification"] == MonitorFailure.RESOURCE_LEAK, told
    assert failed["failureReason"].startswith("open file descriptors grew by "), told
    for verdict in (passed, failed):
        assert verdict["attempt"] == 1, told
        assert verdict["durationSeconds"] >= SECONDS, told
        assert verdict["samples"] >= SECONDS / 2, told
        assert verdict["peakRssBytes"] > 0, told
        assert verdict["residualProcesses"] == 0, told
    assert "open file descriptors grew" in namespace("describe", "trun", "leaky")
