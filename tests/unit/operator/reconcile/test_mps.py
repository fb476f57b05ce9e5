from __future__ import annotations

import json
from typing import Any

import pytest
from fake_cluster import FakeCluster

from drivetrain_api.digest import PROGRESS_LIMIT, Digest, MpsReport, encode
from drivetrain_api.status import Condition, ConditionStatus, ConditionType, Phase, Reason
from drivetrain_api.trainingrun import MpsMode

GPU = {"gpusPerNode": 1, "mps": {"mode": "InContainer"}}
READY = MpsReport(mode=MpsMode.IN_CONTAINER, ready=True, daemons=1, message="1 daemon serves")
BROKEN = MpsReport(
    mode=MpsMode.IN_CONTAINER, ready=False, message="nvidia-cuda-mps-control is not in the image"
)


def report(cluster: FakeCluster, mps: MpsReport, **fields: Any) -> None:
    cluster.report(encode(Digest(**({"attempt": 1, "mps": mps} | fields)), PROGRESS_LIMIT))
    cluster.settle()


def running(**spec: Any) -> FakeCluster:
    cluster = FakeCluster(**({"accelerator": GPU} | spec))
    cluster.begin()
    return cluster


def mps(cluster: FakeCluster) -> Condition:
    found = cluster.status.condition(ConditionType.MPS_READY)
    assert found is not None
    return found


def test_mps_ready_follows_the_launchers_report() -> None:
    cluster = running()
    assert cluster.status.condition(ConditionType.MPS_READY) is None
    report(cluster, READY)
    found = mps(cluster)
    assert (found.status, found.reason, found.message) == (
        ConditionStatus.TRUE,
        Reason.MPS_SERVING,
        "1 daemon serves",
    )
    report(cluster, BROKEN)
    assert (mps(cluster).status, mps(cluster).reason) == (
        ConditionStatus.FALSE,
        Reason.MPS_NOT_READY,
    )


@pytest.mark.parametrize("accelerator", [{}, {"gpusPerNode": 1, "mps": {"mode": "Disabled"}}])
def test_a_run_without_mps_has_no_such_condition_whatever_a_pod_says(
    accelerator: dict[str, Any],
) -> None:
    cluster = running(accelerator=accelerator)
    report(cluster, READY)
    assert cluster.status.condition(ConditionType.MPS_READY) is None


def test_daemons_end_with_their_attempt_though_their_report_stays() -> None:
    cluster = running()
    report(cluster, READY)
    for pod in cluster.live_pods:
        cluster.finish(pod, 0)
    for _ in range(2):
        cluster.job_controller()
        cluster.settle()
    assert cluster.status.phase is Phase.COMPLETE
    assert (mps(cluster).status, mps(cluster).reason) == (
        ConditionStatus.FALSE,
        Reason.PODS_STOPPED,
    )


def test_why_mps_refused_an_attempt_is_told_after_its_end() -> None:
    cluster = running()
    (pod,) = cluster.live_pods
    report(cluster, BROKEN, exit_code=2, message="MPS does not serve")
    cluster.finish(pod, 2)
    cluster.job_controller()
    cluster.settle()
    assert cluster.status.phase is Phase.FAILED
    assert mps(cluster).message == "nvidia-cuda-mps-control is not in the image"


def test_an_evicted_segment_has_no_daemons_until_it_runs_again() -> None:
    cluster = running(queueName="lab", accelerator=GPU)
    job = cluster.job()
    for held, status in ((False, ConditionStatus.TRUE), (True, ConditionStatus.FALSE)):
        job["spec"]["suspend"] = held
        cluster.job_controller()
        for pod in cluster.live_pods:
            cluster.start(pod)
        cluster.settle()
        report(cluster, READY)
        assert mps(cluster).status is status


def test_a_report_without_words_says_how_many_daemons_answer() -> None:
    cluster = running()
    report(cluster, MpsReport(mode=MpsMode.IN_CONTAINER, ready=True, daemons=4))
    assert mps(cluster).message == "InContainer: 4 daemons answer"
    assert "mpsReady" not in json.dumps(cluster.run["status"])
