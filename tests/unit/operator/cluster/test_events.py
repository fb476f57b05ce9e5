from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.fake_api import FakeApi, Fault, eventually, run_virtually, unavailable

from drivetrain_api.trainingrun import ObjectMeta
from drivetrain_operator.cluster import events as module
from drivetrain_operator.cluster.errors import NotFoundError
from drivetrain_operator.cluster.events import BURST, REPEAT_SECONDS, WORDINGS, EventRecorder
from drivetrain_operator.reconcile.decision import EventRecord, EventType

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
RUN = ObjectMeta(name="walk", namespace="lab", uid="run-1", resource_version="7")
BEGAN = EventRecord(EventType.NORMAL, "AttemptStarted", "attempt 1 begins")


def now() -> datetime:
    return START + timedelta(seconds=asyncio.get_running_loop().time())


def told(reason: str, message: str = "m") -> EventRecord:
    return EventRecord(EventType.WARNING, reason, message)


def recorded(api: FakeApi, act: Callable[[EventRecorder], Awaitable[object]]) -> EventRecorder:
    """Enter a recorder, act, leave it; all in virtual time."""

    async def main() -> EventRecorder:
        async with EventRecorder(api, "operator-0", now=now) as recorder:
            await act(recorder)
        return recorder

    return run_virtually(main)


def all_events(api: FakeApi) -> list[dict[str, Any]]:
    return [o for (plural, _, _), o in api.objects.items() if plural == "events"]


def counts(api: FakeApi) -> list[tuple[str, int]]:
    return [(event["message"], event["count"]) for event in all_events(api)]


def test_an_event_tells_all_that_kubectl_shows() -> None:
    api = FakeApi()

    async def act(recorder: EventRecorder) -> None:
        recorder.record(RUN, [BEGAN])

    recorded(api, act)
    (event,) = all_events(api)
    name = event["metadata"]["name"]
    assert name.startswith("walk.")
    assert api.calls[0].words == "POST events"
    assert api.calls[0].body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "lab"},
        "involvedObject": {
            "apiVersion": "drivetrain.dev/v1alpha1",
            "kind": "TrainingRun",
            "name": "walk",
            "namespace": "lab",
            "uid": "run-1",
            "resourceVersion": "7",
        },
        "type": "Normal",
        "reason": "AttemptStarted",
        "message": "attempt 1 begins",
        "source": {"component": "drivetrain-operator"},
        "reportingComponent": "drivetrain-operator",
        "reportingInstance": "operator-0",
        "firstTimestamp": "2026-03-01T12:00:00Z",
        "lastTimestamp": "2026-03-01T12:00:00Z",
        "count": 1,
    }


def test_the_same_again_is_counted_in_one_object() -> None:
    api = FakeApi()

    async def act(recorder: EventRecorder) -> None:
        for _ in range(3):
            recorder.record(RUN, [BEGAN])
            await asyncio.sleep(100)

    recorded(api, act)
    assert api.words[0] == "POST events"
    assert all(words.startswith("PATCH events walk.") for words in api.words[1:])
    (event,) = all_events(api)
    assert event["count"] == 3
    assert event["firstTimestamp"] == "2026-03-01T12:00:00Z"
    assert event["lastTimestamp"] == "2026-03-01T12:03:20Z"


@pytest.mark.parametrize(
    "other",
    [
        (RUN.model_copy(update={"uid": "run-2"}), BEGAN),
        (RUN, EventRecord(EventType.WARNING, BEGAN.reason, BEGAN.message)),
        (RUN, EventRecord(BEGAN.type, "Other", BEGAN.message)),
        (RUN, EventRecord(BEGAN.type, BEGAN.reason, "attempt 2 begins")),
    ],
    ids=["run", "type", "reason", "message"],
)
def test_what_differs_is_another_event(other: tuple[ObjectMeta, EventRecord]) -> None:
    api = FakeApi()

    async def act(recorder: EventRecorder) -> None:
        recorder.record(RUN, [BEGAN])
        recorder.record(other[0], [other[1]])

    recorded(api, act)
    assert [event["count"] for event in all_events(api)] == [1, 1]


def test_much_later_it_is_news_again() -> None:
    api = FakeApi()

    async def act(recorder: EventRecorder) -> None:
        recorder.record(RUN, [BEGAN])
        await asyncio.sleep(REPEAT_SECONDS + 1)
        recorder.record(RUN, [BEGAN])

    recorded(api, act)
    assert [event["count"] for event in all_events(api)] == [1, 1]


def test_an_event_that_expired_on_the_server_is_made_anew() -> None:
    api = FakeApi()

    async def act(recorder: EventRecorder) -> None:
        recorder.record(RUN, [BEGAN])
        await eventually(lambda: all_events(api))
        api.objects.clear()
        recorder.record(RUN, [BEGAN])

    recorded(api, act)
    assert [words.split()[0] for words in api.words] == ["POST", "PATCH", "POST"]
    assert counts(api) == [(BEGAN.message, 1)]


def test_a_reason_with_ever_new_words_ends_in_one_event() -> None:
    api = FakeApi()

    async def act(recorder: EventRecorder) -> None:
        for number in range(WORDINGS + 5):
            recorder.record(RUN, [told("Odd", f"number {number}")])
            await asyncio.sleep(1)
        recorder.record(RUN, [told("Odd", "number 0"), told("Other")])

    recorded(api, act)
    found = dict(counts(api))
    assert len(found) == WORDINGS + 2
    assert found[f"number {WORDINGS + 4}"] == 5
    assert found["number 0"] == 2
    assert found["m"] == 1


def test_a_run_cannot_flood_the_server() -> None:
    api = FakeApi()

    async def act(recorder: EventRecorder) -> None:
        for _ in range(10 * BURST):
            recorder.record(RUN, [BEGAN])
        await eventually(lambda: recorder.dropped)
        other = RUN.model_copy(update={"name": "run", "uid": "run-2"})
        recorder.record(other, [BEGAN])
        await asyncio.sleep(module.REFILL_SECONDS)
        recorder.record(RUN, [BEGAN])

    with capture_logs() as logs:
        recorder = recorded(api, act)
    assert len(api.calls) == BURST + 2
    assert recorder.dropped == 9 * BURST
    assert {entry["run"] for entry in logs} == {"walk"}


def test_recording_waits_for_nothing() -> None:
    """A server that hangs holds up neither the caller nor, for long, the end."""
    api = FakeApi(faults=[Fault("POST events", delay_s=1e6, times=1000)])

    async def act(recorder: EventRecorder) -> None:
        before = asyncio.get_running_loop().time()
        for number in range(3 * module.WAITING):
            recorder.record(RUN, [told(f"R{number}")])
        assert asyncio.get_running_loop().time() == before

    async def main() -> float:
        await act_within(api, act)
        return asyncio.get_running_loop().time()

    async def act_within(
        api: FakeApi, act: Callable[[EventRecorder], Awaitable[None]]
    ) -> EventRecorder:
        async with EventRecorder(api, "operator-0", flush_s=2.0) as recorder:
            await act(recorder)
            assert recorder.dropped >= 2 * module.WAITING
        return recorder

    assert run_virtually(main) <= 2.0


@pytest.mark.parametrize(
    "error",
    [unavailable(), NotFoundError("no namespace", status=404), RuntimeError("a flaw of our own")],
)
def test_what_cannot_be_written_is_logged_and_forgotten(error: Exception) -> None:
    api = FakeApi(faults=[Fault("POST events", error)])

    async def act(recorder: EventRecorder) -> None:
        recorder.record(RUN, [told("Lost"), told("Kept")])

    with capture_logs() as logs:
        recorder = recorded(api, act)
    assert [event["reason"] for event in all_events(api)] == ["Kept"]
    assert recorder.dropped == 1
    entry = logs[-1]
    assert (entry["run"], entry["namespace"], entry["reason"]) == ("walk", "lab", "Lost")


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 8)
    api = FakeApi()

    async def act(recorder: EventRecorder) -> None:
        for number in range(50):
            run = RUN.model_copy(update={"uid": f"run-{number}"})
            recorder.record(run, [BEGAN])
        await eventually(lambda: len(api.calls) == 50)
        assert len(recorder._written) == len(recorder._budgets) == 8

    recorded(api, act)


def test_leaving_writes_what_waits() -> None:
    api = FakeApi(faults=[Fault("POST events", delay_s=0.1, times=5)])

    async def act(recorder: EventRecorder) -> None:
        recorder.record(RUN, [told(f"R{n}") for n in range(5)])

    recorded(api, act)
    assert len(all_events(api)) == 5
