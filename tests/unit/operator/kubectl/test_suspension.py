from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result
from kubectl_api import Asked, FakeApi
from kubectl_objects import training_run

from drivetrain_operator.kubectl import suspension

Call = Callable[..., Result]


@pytest.fixture(autouse=True)
def impatient(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.port  # it made its folder, which is named after the user, before that changes
    monkeypatch.setattr(suspension, "POLL_S", 0.01)
    monkeypatch.setattr(suspension.getpass, "getuser", lambda: "ada")


def held(api: FakeApi, phase: str = "Suspended") -> None:
    raw = training_run(phase=phase, message="suspend is set")
    raw["spec"]["suspend"] = True
    raw["metadata"]["annotations"] = {"drivetrain.dev/suspended-by": "ada", "team": "legs"}
    api.put("trainingruns", raw)


def test_suspend_patches_its_field_and_says_who_asked(api: FakeApi, drivetrain: Call) -> None:
    done = drivetrain("suspend", "walk")
    assert (done.exit_code, done.output) == (0, "walk: suspended as asked\n")
    ((method, path, query, body),) = api.writes()
    assert (method, path.rsplit("/", 1)[1]) == ("PATCH", "walk")
    assert query == {"fieldManager": "kubectl-drivetrain", "fieldValidation": "Strict"}
    assert body == {
        "metadata": {"annotations": {"drivetrain.dev/suspended-by": "ada by kubectl drivetrain"}},
        "spec": {"suspend": True},
    }


def test_resume_takes_both_back_and_nothing_else(api: FakeApi, drivetrain: Call) -> None:
    held(api)
    assert drivetrain("resume", "walk").output == "walk: resumed as asked\n"
    raw = api.objects["trainingruns", "lab", "walk"]
    assert raw["spec"]["suspend"] is False
    assert raw["metadata"]["annotations"] == {"team": "legs"}


def test_asking_twice_writes_once(api: FakeApi, drivetrain: Call) -> None:
    held(api)
    assert drivetrain("suspend", "walk").output == "walk: suspend is true already\n"
    assert not api.writes()


@pytest.mark.parametrize("phase", ["Complete", "Failed"])
@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_a_finished_run_is_left_alone(
    api: FakeApi, drivetrain: Call, phase: str, verb: str
) -> None:
    api.put("trainingruns", training_run("over", phase=phase))
    done = drivetrain(verb, "walk", "over")
    assert done.exit_code == 1
    assert f"TrainingRun over is {phase}: there is nothing to {verb}" in done.output
    assert not api.writes()


def test_several_runs_at_once(api: FakeApi, drivetrain: Call) -> None:
    api.put("trainingruns", training_run("crawl"))
    assert drivetrain("suspend", "walk", "crawl").exit_code == 0
    assert [path.rsplit("/", 1)[1] for _, path, _, _ in api.writes()] == ["walk", "crawl"]


def moves(api: FakeApi, *phases: str) -> None:
    """The operator goes through these phases, one a look after the patch."""
    left = list(phases)

    def move(asked: Asked) -> None:
        if asked.method == "GET" and api.writes() and left:
            phase = left.pop(0)
            api.objects["trainingruns", "lab", "walk"]["status"] |= {
                "phase": phase,
                "message": f"it is {phase}",
            }

    api.before = move


def test_waiting_tells_each_step_once(api: FakeApi, drivetrain: Call) -> None:
    moves(api, "Running", "Suspending", "Suspending", "Suspended")
    done = drivetrain("suspend", "walk", "--wait")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "walk: Running: it is Running",
        "walk: Suspending: it is Suspending",
        "walk: Suspended: it is Suspended",
    ]


def test_waiting_for_a_resumed_run_to_run(api: FakeApi, drivetrain: Call) -> None:
    held(api)
    moves(api, "Suspended", "Pending", "Running")
    assert drivetrain("resume", "walk", "--wait").exit_code == 0


@pytest.mark.parametrize(("phase", "code"), [("Complete", 0), ("Failed", 1)])
def test_a_run_that_ends_while_it_is_waited_for(
    api: FakeApi, drivetrain: Call, phase: str, code: int
) -> None:
    moves(api, phase)
    done = drivetrain("suspend", "walk", "--wait")
    assert done.exit_code == code
    assert ("walk failed meanwhile: it is Failed" in done.output) is (code == 1)


def test_waiting_ends_in_time(drivetrain: Call) -> None:
    done = drivetrain("suspend", "walk", "--wait", "--timeout", "0s")
    assert done.exit_code == 1
    assert "walk is Running after 0s" in done.output


def test_somebody_elses_change_of_mind_is_noticed(api: FakeApi, drivetrain: Call) -> None:
    def move(asked: Asked) -> None:
        if asked.method == "GET" and api.writes():
            api.objects["trainingruns", "lab", "walk"]["spec"]["suspend"] = False

    api.before = move
    assert "somebody set suspend back" in drivetrain("suspend", "walk", "--wait").output


def test_a_refused_patch_says_why(api: FakeApi, drivetrain: Call) -> None:
    words = 'trainingruns.drivetrain.dev "walk" is forbidden: User "ada" cannot patch'
    api.answers["PATCH", "trainingruns"] = (403, "Forbidden", words)
    done = drivetrain("suspend", "walk")
    assert done.exit_code == 1
    assert words in done.output
    assert "ask for that permission" in done.output
