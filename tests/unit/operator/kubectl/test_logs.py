from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result
from kubectl_api import Asked, FakeApi
from kubectl_objects import pod, training_run

from drivetrain_operator.kubectl import logs as module

Call = Callable[..., Result]
FIRST, SECOND = "walk-a2-0-abcde", "walk-a2-1-abcde"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.01)


@pytest.fixture(autouse=True)
def written(api: FakeApi) -> None:
    api.logs = {FIRST: ["zero", "one"], SECOND: ["two"]}


def log_query(api: FakeApi) -> dict[str, str]:
    (query,) = [query for _, path, query, _ in api.requests if path.endswith("/log")]
    return query


@pytest.mark.parametrize(
    ("rank", "text", "shared"),
    [
        (0, "zero\none\n", "0-1"),
        (1, "zero\none\n", "0-1"),
        (2, "two\n", "2-3"),
        (3, "two\n", "2-3"),
    ],
)
def test_a_rank_is_in_the_pod_of_its_node(
    drivetrain: Call, rank: int, text: str, shared: str
) -> None:
    done = drivetrain("logs", "walk", "--rank", str(rank))
    assert (done.exit_code, done.stdout) == (0, text)
    assert done.stderr == f"ranks {shared} share this pod and its log\n"


def test_options_reach_the_server(api: FakeApi, drivetrain: Call) -> None:
    done = drivetrain(
        "logs", "walk", "--tail", "1", "--since", "5m", "--timestamps", "-c", "sidecar"
    )
    assert done.stdout == "one\n"
    assert log_query(api) == {
        "container": "sidecar",
        "tailLines": "1",
        "sinceSeconds": "300",
        "timestamps": "true",
    }


def test_every_pods_lines_say_whose_they_are(drivetrain: Call) -> None:
    done = drivetrain("logs", "walk", "--all-pods")
    assert sorted(done.stdout.splitlines()) == ["[0-1] one", "[0-1] zero", "[2-3] two"]


@pytest.mark.parametrize("words", [("--rank", "4"), ("--rank", "400")])
def test_a_rank_that_does_not_exist(drivetrain: Call, words: tuple[str, ...]) -> None:
    done = drivetrain("logs", "walk", *words)
    assert done.exit_code == 1
    assert "its ranks are 0 to 3" in done.output


@pytest.mark.parametrize("words", [("-p",), ("--previous-attempt",), ("--attempt", "1")])
def test_an_ended_attempts_log_is_gone_and_why(drivetrain: Call, words: tuple[str, ...]) -> None:
    done = drivetrain("logs", "walk", *words)
    assert done.exit_code == 1
    assert "the log of attempt 1 is gone" in done.output
    assert "kubectl drivetrain describe walk" in done.output


def test_the_current_attempt_may_be_named(drivetrain: Call) -> None:
    assert drivetrain("logs", "walk", "--attempt", "2").stdout == "zero\none\n"
    done = drivetrain("logs", "walk", "--attempt", "3")
    assert "has no attempt 3 yet: it is at 2" in done.output


def test_no_attempt_before_the_first(api: FakeApi, drivetrain: Call) -> None:
    api.put("trainingruns", training_run("new", attempt=1, history=[]))
    assert "has no attempt before attempt 1" in drivetrain("logs", "new", "-p").output
    held = {"phase": "Pending", "message": "spec.algo: unknown", "attempt": 0, "history": []}
    api.put("trainingruns", training_run("newer", **held))
    assert "has no attempt yet: spec.algo: unknown" in drivetrain("logs", "newer").output


def test_a_container_that_did_not_start_is_explained_by_the_run(
    api: FakeApi, drivetrain: Call
) -> None:
    api.logs = {}
    done = drivetrain("logs", "walk")
    assert done.exit_code == 1
    assert "is waiting to start" in done.output
    assert "attempt 2: 2 of 2 pods running\n-f waits for it to start" in done.output


def test_following_waits_for_the_pod_and_for_its_container(api: FakeApi, drivetrain: Call) -> None:
    api.logs = {}
    late = api.objects.pop(("pods", "lab", FIRST))
    seen: list[str] = []

    def move(asked: Asked) -> None:
        seen.append(f"{asked.plural}/{asked.name}")
        if seen.count("pods/") == 3:
            api.put("pods", late)
        if seen.count(f"pods/{FIRST}") == 3:
            api.logs = {FIRST: ["at last"]}

    api.before = move
    done = drivetrain("logs", "walk", "-f")
    assert (done.exit_code, done.stdout) == (0, "at last\n")
    assert "attempt 2 of walk has no pod yet: attempt 2: 2 of 2 pods running" in done.stderr
    assert "the log of attempt 2 ended; walk is Running" in done.stderr


def test_a_pod_without_a_node_has_no_log_though_the_server_gives_an_empty_one(
    api: FakeApi, drivetrain: Call
) -> None:
    waiting = pod(index=0, phase="Pending", conditions=[])
    waiting["spec"] = {}
    api.put("pods", waiting)
    done = drivetrain("logs", "walk")
    assert done.exit_code == 1
    assert "attempt 2 of walk has no scheduled pod for ranks 0-1: it is Running" in done.output

    def move(asked: Asked) -> None:
        if asked.plural == "trainingruns" and len(api.requests) > 8:
            api.put("pods", pod(index=0))

    api.before = move
    assert drivetrain("logs", "walk", "-f").stdout == "zero\none\n"


def test_following_ends_where_the_attempt_does(api: FakeApi, drivetrain: Call) -> None:
    del api.objects["pods", "lab", FIRST]

    def move(asked: Asked) -> None:
        if asked.plural == "pods":
            api.put("trainingruns", training_run(attempt=3, message="attempt 3 begins"))

    api.before = move
    done = drivetrain("logs", "walk", "-f")
    assert done.exit_code == 1
    assert "attempt 2 of walk has no pod for ranks 0-1: it is Running" in done.output
    assert "attempt 3 begins" in done.output


def test_a_container_that_does_not_exist_is_not_waited_for(api: FakeApi, drivetrain: Call) -> None:
    words = f"container nope is not valid for pod {FIRST}"

    def move(asked: Asked) -> None:
        if asked.plural == "pods" and asked.name:
            api.answers = {("GET", "pods"): (400, "BadRequest", words)}

    api.before = move
    done = drivetrain("logs", "walk", "-f", "-c", "nope")
    assert done.exit_code == 1
    assert done.output.splitlines()[-1] == f"error: {words}"


def test_a_pod_that_vanished_meanwhile(api: FakeApi, drivetrain: Call) -> None:
    def move(asked: Asked) -> None:
        if asked.plural == "pods" and asked.name:
            api.answers = {("GET", "pods"): (404, "NotFound", "pods not found")}

    api.before = move
    done = drivetrain("logs", "walk")
    assert f"pod {FIRST} is gone" in done.output
