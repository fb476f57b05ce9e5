from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from drivetrain_operator.cluster.client import Method
from drivetrain_operator.cluster.errors import ApiError, ForbiddenError, NotFoundError
from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.cluster.resources import TRAINING_RUNS, Resource
from drivetrain_operator.cluster.store import Store
from drivetrain_operator.queue import KeyedQueue
from drivetrain_operator.wiring import resync as module
from drivetrain_operator.wiring.echoes import Echoes
from drivetrain_operator.wiring.resync import Resync

Object = dict[str, Any]


def run(name: str, version: int, namespace: str = "lab") -> Object:
    return {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "generation": 1,
            "resourceVersion": str(version),
        },
        "spec": {"note": version},
    }


@dataclass
class Server:
    """Lists runs, two a page."""

    version: int = 100
    runs: list[Object] = field(default_factory=list)
    faults: list[ApiError] = field(default_factory=list)
    asked: list[tuple[str | None, str]] = field(default_factory=list)

    async def request(
        self,
        method: Method,
        resource: Resource,
        *,
        namespace: str | None,
        params: Mapping[str, str],
        timeout_s: float,
    ) -> Object:
        assert (method, resource, params["limit"]) == (Method.GET, TRAINING_RUNS, "500")
        assert timeout_s >= 15
        self.asked.append((namespace, params.get("continue", "")))
        if self.faults:
            raise self.faults.pop(0)
        found = [r for r in self.runs if namespace in (None, r["metadata"]["namespace"])]
        begin = int(params.get("continue", "0"))
        token = str(begin + 2) if len(found) > begin + 2 else ""
        meta = {"resourceVersion": str(self.version), "continue": token}
        return {"metadata": meta, "items": found[begin : begin + 2]}


class Bench:
    def __init__(self, *watched: str | None, every_s: float = 0.01) -> None:
        self.server = Server()
        self.touched: list[RunKey] = []
        self.store = Store(self.touched.append)
        self.echoes = Echoes()
        self.queue: KeyedQueue[RunKey] = KeyedQueue()
        self.resync = Resync(
            self.server,  # type: ignore[arg-type]  # answers lists alone
            watched or (None,),
            self.store,
            self.echoes,
            self.queue,
            every_s=every_s,
        )

    def look(self) -> None:
        asyncio.run(self.resync.look())


def test_all_pages_are_taken_over() -> None:
    bench = Bench()
    bench.server.runs = [run(name, 10 + i) for i, name in enumerate("abcde")]
    bench.look()
    assert {key.name for key in bench.store.runs()} == set("abcde")
    assert [token for _, token in bench.server.asked] == ["", "2", "4"]
    assert len(bench.touched) == 5


def test_what_is_gone_is_swept_and_what_is_newer_than_the_list_stays() -> None:
    bench = Bench()
    bench.store.put(TRAINING_RUNS, run("old", 50))
    bench.store.put(TRAINING_RUNS, run("new", 150))
    bench.look()
    assert [key.name for key in bench.store.runs()] == ["new"]
    assert bench.touched[-1] == RunKey("lab", "old")


def test_the_watch_owes_what_a_list_shows_first() -> None:
    bench = Bench()
    bench.server.runs = [run("a", 10), run("b", 11)]
    bench.echoes.seen(RunKey("lab", "a"), "10")
    bench.look()
    assert set(bench.echoes._owed) == {RunKey("lab", "b")}
    bench.echoes.seen(RunKey("lab", "b"), "11")
    assert bench.echoes.silence() == 0.0


def test_a_deletion_that_nobody_reported_settles_the_debt() -> None:
    bench = Bench()
    bench.server.runs = [run("a", 10)]
    bench.look()
    bench.server.runs = []
    bench.look()
    assert bench.echoes._owed == {}


def test_a_run_that_was_deleted_since_is_not_owed() -> None:
    """The list is older than the deletion: the store knows better."""
    bench = Bench()
    bench.store.delete(TRAINING_RUNS, run("a", 120))
    bench.server.runs = [run("a", 10)]
    bench.look()
    assert list(bench.store.runs()) == []
    assert bench.echoes._owed == {}


def test_each_namespace_is_listed_and_swept_by_itself() -> None:
    bench = Bench("lab", "team")
    bench.store.put(TRAINING_RUNS, run("x", 5, "elsewhere"))
    bench.server.runs = [run("a", 10, "lab"), run("b", 11, "team")]
    bench.look()
    assert {str(key) for key in bench.store.runs()} == {"lab/a", "team/b", "elsewhere/x"}


def test_a_failed_list_sweeps_nothing() -> None:
    bench = Bench()
    bench.store.put(TRAINING_RUNS, run("a", 5))
    bench.server.faults = [ForbiddenError("no")]
    with pytest.raises(ForbiddenError):
        bench.look()
    assert [key.name for key in bench.store.runs()] == ["a"]


def test_the_first_look_waits_and_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    troubles: list[str] = []

    async def sleep(seconds: float) -> None:
        assert seconds == module.FIRST_RETRY_SECONDS
        troubles.append(bench.resync.trouble)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    bench.server.faults = [
        NotFoundError("the server could not find the requested resource", status=404),
        ForbiddenError("cannot list trainingruns", status=403, reason="Forbidden"),
    ]
    assert bench.resync.trouble == "TrainingRuns are not listed yet"
    asyncio.run(bench.resync.first())
    assert "is the TrainingRun definition installed?" in troubles[0]
    assert troubles[1] == "403 Forbidden: cannot list trainingruns"
    assert bench.resync.trouble == ""


def test_every_run_is_looked_at_again_and_failures_are_survived() -> None:
    bench = Bench()
    bench.server.runs = [run(name, 10) for name in "abc"]
    bench.server.faults = [ForbiddenError("no")]

    async def go() -> set[str]:
        task = asyncio.create_task(bench.resync.run())
        got = {(await bench.queue.get()).name for _ in range(3)}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return got

    assert asyncio.run(go()) == set("abc")
