"""Two candidates on one Lease, in virtual time: at no moment do both hold it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.fake_api import (
    FakeApi,
    Fault,
    VirtualLoop,
    conflict,
    eventually,
    run_virtually,
    unavailable,
)

from drivetrain_operator.cluster.lease import LeaderElection, own_identity

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
LEASE_S, RENEW_S, RETRY_S = 15.0, 10.0, 2.0


def clock() -> float:
    return asyncio.get_running_loop().time()


def candidate(api: Any, identity: str = "one", skew_s: float = 0.0) -> LeaderElection:
    return LeaderElection(
        api,
        "operator",
        "lab",
        identity,
        now=lambda: START + timedelta(seconds=clock() + skew_s),
    )


def lease(api: FakeApi) -> dict[str, Any]:
    found: dict[str, Any] = api.get("leases", "operator")["spec"]
    return found


class Cut:
    """One candidate's connection, which can be cut: requests hang, or fail at once."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.hangs = False
        self.fails = False

    async def request(self, *args: Any, **options: Any) -> dict[str, Any]:
        if self.hangs:
            await asyncio.sleep(1e9)
        if self.fails:
            raise unavailable(0)
        return await self.api.request(*args, **options)


def virtually(main: Callable[[FakeApi], Coroutine[Any, Any, None]]) -> FakeApi:
    api = FakeApi()

    async def bounded() -> None:
        async with asyncio.timeout(5000):
            await main(api)

    run_virtually(bounded)
    return api


def test_a_lease_that_is_not_there_is_made() -> None:
    async def main(api: FakeApi) -> None:
        one = candidate(api)
        assert not one.held
        await one.acquire()
        assert one.held
        assert one.holder == "one"
        assert clock() == 0
        assert lease(api) == {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-03-01T12:00:00.000000Z",
            "renewTime": "2026-03-01T12:00:00.000000Z",
            "leaseTransitions": 1,
        }
        await one.release()
        assert not one.held

    virtually(main)


def test_a_lease_goes_with_its_owner() -> None:
    owner = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "operator", "uid": "2"}

    async def main(api: FakeApi) -> None:
        one = LeaderElection(api, "operator", "lab", "one", owner=owner)
        await one.acquire()
        await one.release()
        assert api.get("leases", "operator")["metadata"]["ownerReferences"] == [owner]

    virtually(main)


def test_the_holder_renews_with_one_request() -> None:
    async def main(api: FakeApi) -> None:
        one = candidate(api)
        await one.acquire()
        await asyncio.sleep(60)
        assert one.held
        assert set(api.words[2:]) == {"PUT leases operator"}
        assert 28 <= len(api.calls) - 2 <= 31
        assert lease(api)["acquireTime"] == "2026-03-01T12:00:00.000000Z"
        assert lease(api)["renewTime"] > "2026-03-01T12:00:55"
        await one.release()

    virtually(main)


def test_a_released_lease_is_taken_at_once() -> None:
    async def main(api: FakeApi) -> None:
        one, two = candidate(api), candidate(api, "two")
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(31)
        assert not waiting.done()
        await one.release()
        released = clock()
        assert lease(api)["holderIdentity"] == ""
        await waiting
        assert clock() - released <= RETRY_S
        assert two.held
        assert lease(api)["leaseTransitions"] == 2
        assert not one.lost.is_set()
        await two.release()

    virtually(main)


@pytest.mark.parametrize("skew_s", [0.0, 3600.0, -3600.0])
def test_a_dead_holders_lease_is_taken_once_it_is_over(skew_s: float) -> None:
    """By the candidate's own watch, however wrong the clocks on the walls are."""

    async def main(api: FakeApi) -> None:
        cut = Cut(api)
        one, two = candidate(cut), candidate(api, "two", skew_s)
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(20)
        cut.fails = True
        died = clock()
        await waiting
        assert LEASE_S - RETRY_S <= clock() - died <= LEASE_S + RETRY_S
        await one.release()
        await two.release()

    virtually(main)


def test_a_candidate_that_starts_late_waits_the_whole_time() -> None:
    async def main(api: FakeApi) -> None:
        cut = Cut(api)
        one = candidate(cut)
        await one.acquire()
        cut.fails = True
        await asyncio.sleep(1000)
        two = candidate(api, "two")
        began = clock()
        await two.acquire()
        assert LEASE_S <= clock() - began <= LEASE_S + RETRY_S
        await two.release()

    virtually(main)


def test_the_holders_promise_counts_not_the_candidates() -> None:
    async def main(api: FakeApi) -> None:
        one = LeaderElection(api, "operator", "lab", "one", lease_s=60, renew_s=40)
        await one.acquire()
        one._renewing.cancel()  # type: ignore[union-attr]
        two = candidate(api, "two")
        await two.acquire()
        assert 60 <= clock() <= 62 + RETRY_S
        await two.release()

    virtually(main)


@pytest.mark.parametrize("hangs", [True, False])
def test_an_outage_ends_the_holder_before_anybody_takes_over(hangs: bool) -> None:
    async def main(api: FakeApi) -> None:
        cut = Cut(api)
        one, two = candidate(cut), candidate(api, "two")
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(21)
        cut.hangs, cut.fails = hangs, not hangs
        await one.lost.wait()
        assert not one.held
        assert not waiting.done()
        assert RENEW_S - RETRY_S <= clock() - 21 <= RENEW_S
        await waiting
        await one.release()
        await two.release()

    virtually(main)


def test_a_short_outage_is_ridden_out() -> None:
    async def main(api: FakeApi) -> None:
        cut = Cut(api)
        one = candidate(cut)
        await one.acquire()
        for hangs in (True, False):
            cut.hangs, cut.fails = hangs, not hangs
            await asyncio.sleep(4)
            cut.hangs = cut.fails = False
            await asyncio.sleep(10)
            assert one.held
        assert not one.lost.is_set()
        await one.release()

    virtually(main)


def test_an_answer_that_was_lost_is_found_out() -> None:
    async def main(api: FakeApi) -> None:
        one = candidate(api)
        await one.acquire()
        api.faults.append(Fault("PUT leases", unavailable(0), written=True))
        await asyncio.sleep(30)
        assert one.held
        assert lease(api)["leaseTransitions"] == 1
        await one.release()

    virtually(main)


def test_a_usurper_ends_the_holder_at_once() -> None:
    async def main(api: FakeApi) -> None:
        one = candidate(api)
        await one.acquire()
        await asyncio.sleep(21)
        lease(api)["holderIdentity"] = "two"
        api.touch("leases", "operator")
        await one.lost.wait()
        assert clock() - 21 <= 2 * RETRY_S
        assert one.holder == "two"
        await one.release()
        assert lease(api)["holderIdentity"] == "two"

    virtually(main)


def test_a_renewal_that_breaks_is_a_lost_lease() -> None:
    async def main(api: FakeApi) -> None:
        one = candidate(api)
        await one.acquire()
        api.faults.append(Fault("PUT leases", RuntimeError("a flaw of our own")))
        await one.lost.wait()
        assert not one.held
        await one.release()

    virtually(main)


def test_trouble_lasts_as_long_as_the_lease_cannot_be_reached() -> None:
    async def main(api: FakeApi) -> None:
        cut = Cut(api)
        cut.fails = True
        one = candidate(cut)
        acquired = asyncio.create_task(one.acquire())
        await eventually(lambda: one.trouble)
        assert one.trouble == "not now"
        cut.fails = False
        await acquired
        assert one.trouble == ""
        await one.release()

    virtually(main)


def test_a_lease_that_was_deleted_is_made_again() -> None:
    async def main(api: FakeApi) -> None:
        one = candidate(api)
        await one.acquire()
        await asyncio.sleep(5)
        api.objects.clear()
        await asyncio.sleep(60)
        assert one.held
        assert lease(api)["holderIdentity"] == "one"
        await one.release()

    virtually(main)


def test_a_process_that_was_stopped_knows_that_it_is_late() -> None:
    async def main(api: FakeApi) -> None:
        one = candidate(api)
        await one.acquire()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.jump(RENEW_S)
        assert not one.held
        await one.lost.wait()
        assert [words for words in api.words if words.startswith("PUT")] == []
        await one.release()

    virtually(main)


def test_what_is_not_the_holders_stays_in_the_lease() -> None:
    async def main(api: FakeApi) -> None:
        api.add(
            "leases",
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "operator", "labels": {"team": "a"}},
                "spec": {"strategy": "OldestEmulationVersion"},
            },
        )
        one = candidate(api)
        await one.acquire()
        assert lease(api)["strategy"] == "OldestEmulationVersion"
        assert api.get("leases", "operator")["metadata"]["labels"] == {"team": "a"}
        await one.release()

    virtually(main)


def test_the_end_is_bounded_without_a_server() -> None:
    async def main(api: FakeApi) -> None:
        cut = Cut(api)
        one = candidate(cut)
        await one.acquire()
        cut.hangs = True
        began = clock()
        await one.release()
        assert clock() - began <= 3

    virtually(main)


@pytest.mark.parametrize("times", [(15, 15, 2), (15, 10, 10), (15, 10, 0), (5, 10, 2)])
def test_times_that_cannot_work_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"0 < retry_s < renew_s < lease_s; got"):
        LeaderElection(
            FakeApi(), "a", "b", "c", lease_s=times[0], renew_s=times[1], retry_s=times[2]
        )


def test_no_two_processes_share_an_identity() -> None:
    assert own_identity() != own_identity()


FAULTS = st.sampled_from(["hang", "fail", "conflict", "lost answer", "heal"])


@settings(max_examples=60)
@given(steps=st.lists(st.tuples(st.integers(0, 1), FAULTS, st.integers(0, 25)), max_size=8))
def test_never_do_two_hold_it(steps: list[tuple[int, str, int]]) -> None:
    async def main(api: FakeApi) -> None:
        cuts = [Cut(api), Cut(api)]
        both = [candidate(cuts[0], "one"), candidate(cuts[1], "two", skew_s=77.0)]
        waiting = [asyncio.create_task(one.acquire()) for one in both]

        async def watch() -> None:
            while True:
                assert not (both[0].held and both[1].held)
                await asyncio.sleep(0.25)

        watching = asyncio.create_task(watch())
        for who, what, seconds in steps:
            cuts[who].hangs, cuts[who].fails = what == "hang", what == "fail"
            if what == "conflict":
                api.faults.append(Fault("PUT leases", conflict("x")))
            elif what == "lost answer":
                api.faults.append(Fault("PUT leases", unavailable(0), written=True))
            await asyncio.sleep(seconds)
            assert not watching.done()
        for cut in cuts:
            cut.hangs = cut.fails = False
        await eventually(lambda: any(one.held or one.lost.is_set() for one in both))
        watching.cancel()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, watching, return_exceptions=True)
        for one in both:
            await one.release()

    virtually(main)
