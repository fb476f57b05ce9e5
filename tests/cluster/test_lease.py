"""Two replicas on a real Lease; one of them behind a proxy that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.kubernetes.api import Api, Object, wait_for
from tests.support.kubernetes.calls import Selector
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.faults import Fault
from tests.support.kubernetes.proxy import Proxy

from drivetrain_operator.cluster.client import Cluster
from drivetrain_operator.cluster.lease import LeaderElection
from drivetrain_operator.wiring import program
from drivetrain_operator.wiring.settings import OperatorSettings

pytestmark = pytest.mark.cluster

LEASE_S, RENEW_S, RETRY_S = 3.0, 2.0, 0.2
GROUP = "coordination.k8s.io/v1"


@pytest.fixture
def behind(control_plane: ControlPlane, proxy: Proxy, namespace: str, tmp_path: Path) -> Path:
    """A kubeconfig that goes through the proxy."""
    path = tmp_path / "behind"
    return control_plane.write_kubeconfig(path, url=proxy.url, namespace=namespace)


def candidate(cluster: Cluster, identity: str, skew_s: float = 0.0) -> LeaderElection:
    return LeaderElection(
        cluster,
        "operator",
        cluster.namespace,
        identity,
        lease_s=LEASE_S,
        renew_s=RENEW_S,
        retry_s=RETRY_S,
        now=lambda: datetime.now(UTC) + timedelta(seconds=skew_s),
    )


def race(
    first: Path,
    second: Path,
    act: Callable[[LeaderElection, LeaderElection], Awaitable[None]],
    skew_s: float = 0.0,
) -> None:
    """Let two candidates act; they are released at the end, whatever happens."""

    async def main() -> None:
        async with (
            await Cluster.connect(kubeconfig=first) as near,
            await Cluster.connect(kubeconfig=second) as far,
        ):
            one, two = candidate(near, "one"), candidate(far, "two", skew_s)
            try:
                async with asyncio.timeout(60):
                    await act(one, two)
            finally:
                await one.release()
                await two.release()

    asyncio.run(main())


def spec(api: Api, namespace: str) -> Object:
    found: Object = api.get(GROUP, "Lease", "operator", namespace)["spec"]
    return found


def test_a_released_lease_goes_to_the_other(api: Api, kubeconfig: Path, namespace: str) -> None:
    async def act(one: LeaderElection, two: LeaderElection) -> None:
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(LEASE_S + RETRY_S)
        assert one.held
        assert not waiting.done()
        await one.release()
        assert spec(api, namespace)["holderIdentity"] == ""
        async with asyncio.timeout(LEASE_S / 2):
            await waiting
        assert two.held
        assert not one.held
        assert spec(api, namespace)["holderIdentity"] == "two"
        assert spec(api, namespace)["leaseTransitions"] == 2

    race(kubeconfig, kubeconfig, act)


@pytest.mark.parametrize("action", [Fault.HANG, Fault.DROP])
@pytest.mark.parametrize("skew_s", [0.0, -7200.0])
def test_a_cut_off_holder_ends_before_the_other_begins(
    kubeconfig: Path, behind: Path, proxy: Proxy, action: Fault, skew_s: float
) -> None:
    async def act(one: LeaderElection, two: LeaderElection) -> None:
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(1)
        with proxy.inject(Selector(), action):
            await one.lost.wait()
            assert not one.held
            assert not waiting.done()
            await waiting
            assert two.held

    race(behind, kubeconfig, act, skew_s)


def test_an_outage_of_the_server_is_survived_by_one_of_them(
    kubeconfig: Path, behind: Path, proxy: Proxy
) -> None:
    async def act(one: LeaderElection, two: LeaderElection) -> None:
        await one.acquire()
        with proxy.inject(Selector(), Fault.DROP, times=3):
            await asyncio.sleep(RENEW_S)
            assert one.held
        assert not one.lost.is_set()
        assert not two.held

    race(behind, kubeconfig, act)


def test_a_lost_answer_is_no_lost_lease(
    api: Api, kubeconfig: Path, behind: Path, proxy: Proxy, namespace: str
) -> None:
    async def act(one: LeaderElection, _: LeaderElection) -> None:
        await one.acquire()
        with proxy.inject(Selector(), Fault.LOSE_ANSWER, times=1) as injection:
            await asyncio.to_thread(injection.wait)
            await asyncio.sleep(RENEW_S + RETRY_S)
        assert one.held
        assert spec(api, namespace)["leaseTransitions"] == 1

    race(behind, kubeconfig, act)


def test_many_candidates_one_leader(api: Api, kubeconfig: Path, namespace: str) -> None:
    async def main() -> None:
        async with await Cluster.connect(kubeconfig=kubeconfig) as cluster:
            all_ = [candidate(cluster, f"c{n}") for n in range(5)]
            tasks = [asyncio.create_task(one.acquire()) for one in all_]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(3 * RETRY_S)
            (holder,) = [one for one in all_ if one.held]
            assert spec(api, namespace)["holderIdentity"] == holder.holder
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await holder.release()

    asyncio.run(main())


def test_a_lease_goes_with_the_account_that_made_it(
    control_plane: ControlPlane, api: Api, namespace: str, tmp_path: Path
) -> None:
    """So an uninstalled operator leaves none behind, and needs no right to delete it."""
    wait_for(lambda: api.find("v1", "ServiceAccount", "default", namespace), "account")
    token = control_plane.account_token(namespace, "default")
    config = control_plane.write_kubeconfig(tmp_path / "own", token=token, namespace=namespace)
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    rights = {"rules": [rule | {"verbs": ["create", "get", "update"]}]}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "lease"}}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lease"}
    api.create({**rbac, "kind": "Role", **rights}, namespace=namespace)
    api.create(
        {**rbac, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]},
        namespace=namespace,
    )

    async def main() -> None:
        async with await Cluster.connect(kubeconfig=config) as cluster:
            settings = OperatorSettings.read({"lease_name": "operator"})
            lease = program._lease(settings, cluster)
            async with asyncio.timeout(60):
                await lease.acquire()
                assert lease.held
                await lease.release()

    asyncio.run(main())
    assert api.find(GROUP, "Lease", "operator", namespace) is not None

    api.delete("v1", "ServiceAccount", "default", namespace)

    wait_for(lambda: api.find(GROUP, "Lease", "operator", namespace) is None, "end of the Lease")
