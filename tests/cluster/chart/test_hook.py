"""`helm test`, with the ends of its pod played by the test: there is no kubelet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.chart import CHART, Helm, HelmError
from tests.support.kubernetes.api import Api, wait_for

RELEASE = "trial"
POD = f"{RELEASE}-drivetrain-test"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_pods_end_is_the_verdict_and_nothing_is_left(
    api: Api, helm: Helm, namespace: str, phase: str
) -> None:
    place = ("--namespace", namespace)
    helm.run("install", RELEASE, str(CHART), *place, values={"crds": {"install": False}})

    with ThreadPoolExecutor(1) as pool:
        tested = pool.submit(helm.run, "test", RELEASE, *place)
        wait_for(lambda: api.find("v1", "Pod", POD, namespace), "test's pod")
        status = {"status": {"phase": phase}}
        api.patch("v1", "Pod", POD, status, namespace, subresource="status")

        if phase == "Succeeded":
            assert "Phase:          Succeeded" in tested.result()
        else:
            with pytest.raises(HelmError, match=f"pod {POD} failed"):
                tested.result()
    helm.run("uninstall", RELEASE, *place)
    wait_for(lambda: not api.objects("v1", "Pod", namespace), "end of every pod")
