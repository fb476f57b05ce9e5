"""list, describe and artifacts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml
from click.testing import Result
from kubectl_api import FakeApi
from kubectl_objects import ago, condition, pod, training_run

from drivetrain_operator.kubectl import runs

Call = Callable[..., Result]


def cells(line: str) -> list[str]:
    return line.split()


def test_a_list_has_a_row_a_run_and_explains_those_that_need_it(
    api: FakeApi, drivetrain: Call
) -> None:
    words = "pod b-a1-0 is not scheduled: 0/1 nodes are available: 1 Insufficient cpu."
    pending = {"phase": "Pending", "message": words, "progress": None, "attempt": 1, "done": None}
    api.put("trainingruns", training_run("b", **pending))
    done = drivetrain("list")
    assert done.exit_code == 0
    header, first, second, empty, told = done.output.splitlines()
    assert cells(header)[:3] == ["NAME", "PHASE", "ALGO"]
    assert cells(first) == [
        "b",
        "Pending",
        "sac",
        "hopper",
        "4",
        "-",
        "-",
        "-",
        "-",
        "1",
        "0",
        "2h",
    ]
    assert cells(second)[5:9] == ["42%", "1h11m", "8123.4", "812.44"]
    assert (empty, told) == ("", f"b: {words}")


def test_a_list_of_every_namespace_names_it(api: FakeApi, drivetrain: Call) -> None:
    other = training_run("walk")
    other["metadata"]["namespace"] = "den"
    api.put("trainingruns", other)
    lines = drivetrain("list", "-A").output.splitlines()
    assert [cells(line)[:2] for line in lines] == [
        ["NAMESPACE", "NAME"],
        ["den", "walk"],
        ["lab", "walk"],
    ]
    assert len(drivetrain("list").output.splitlines()) == 2


def test_options_before_and_after_the_commands_name(api: FakeApi, drivetrain: Call) -> None:
    other = training_run("crawl")
    other["metadata"]["namespace"] = "den"
    api.put("trainingruns", other)
    for words in (("-n", "den", "list"), ("list", "-n", "den"), ("-n", "x", "list", "-n", "den")):
        assert "crawl" in drivetrain(*words).output


def test_a_list_of_nothing_says_where_it_looked(api: FakeApi, drivetrain: Call) -> None:
    done = drivetrain("list", "-n", "empty")
    assert (done.exit_code, done.output) == (0, "no TrainingRuns in namespace empty\n")
    del api.objects["trainingruns", "lab", "walk"]
    assert drivetrain("list", "-A").output == "no TrainingRuns in any namespace\n"


def test_a_long_list_comes_in_chunks(
    api: FakeApi, drivetrain: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "CHUNK", 2)
    for number in range(6):
        api.put("trainingruns", training_run(f"run-{number}"))
    assert len(drivetrain("list").output.splitlines()) == 8
    assert len(api.requests) == 4


def test_a_selector_is_the_servers_business(api: FakeApi, drivetrain: Call) -> None:
    mine = training_run("mine")
    mine["metadata"]["labels"] = {"team": "legs"}
    api.put("trainingruns", mine)
    lines = drivetrain("list", "-l", "team=legs").output.splitlines()
    assert [cells(line)[0] for line in lines] == ["NAME", "mine"]


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_data_is_what_the_server_holds(
    drivetrain: Call, form: str, load: Callable[[str], dict[str, object]]
) -> None:
    one = load(drivetrain("describe", "walk", "-o", form).output)
    raw = training_run()
    assert one["spec"] == raw["spec"]
    assert one["status"] == raw["status"]
    assert "managedFields" not in one["metadata"]  # type: ignore[operator] - loaded text
    listed = load(drivetrain("list", "-o", form).output)
    assert listed == {"apiVersion": "v1", "kind": "List", "items": [one]}


def test_a_description_has_every_section(api: FakeApi, drivetrain: Call) -> None:
    for number, uid in enumerate(("uid-walk", "other")):
        event = {
            "metadata": {"name": f"e{number}"},
            "involvedObject": {"uid": uid},
            "type": "Normal",
            "reason": "PodsRunning",
            "message": f"event of {uid}",
            "eventTime": ago(600),
            "series": {"count": 3, "lastObservedTime": ago(120)},
        }
        api.put("events", event)
    text = drivetrain("describe", "walk").output
    assert [line for line in text.splitlines() if line and line[0] != " " and ":" not in line] == [
        "Progress",
        "Attempts",
        "Conditions",
        "Pods",
        "Artifacts",
        "Events",
    ]
    for words in (
        "Phase:     Running: attempt 2: 2 of 2 pods running",
        "Ranks:     2 pods of 2 ranks on CPU",
        "Storage:   PersistentVolumeClaim walk-storage",
        "Restarts:  0 of 3; 1 disruption, not counted",
        "Age:       2h, ran for 1h10m",
        "[############------------------] 42%  420,000 of 1,000,000 steps, iteration 410",
        "Left:        1h11m",
        "Checkpoint:  at 400,000 steps",
        "1    2h ago   1h48m   Disrupted      -   no        pod walk-a1-1-x: EvictionByEvictionAPI",
        "walk-a2-1-abcde   2-3     Running   node-1",
        "last_checkpoint   5.2 MiB   abababababab   logs/fast_sac/hopper/x/checkpoints/400000",
        "2m   x3     Normal   PodsRunning   event of uid-walk",
    ):
        assert words in text, words
    assert "event of other" not in text


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"phase": "Pending", "conditions": []}, "Unscheduled"),
        ({"reason": "Evicted", "phase": "Failed"}, "Evicted"),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "i", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
                ],
            },
            "Init:CrashLoopBackOff",
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [
                    {
                        "name": "trainer",
                        "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ],
            },
            "OOMKilled (137)",
        ),
    ],
)
def test_a_pods_state_is_what_kubectl_would_say(
    api: FakeApi, drivetrain: Call, status: dict[str, object], state: str
) -> None:
    changed = pod(index=1, **status)
    if state == "Unscheduled":
        changed["spec"] = {}
    api.put("pods", changed)
    assert f"walk-a2-1-abcde   2-3     {state}" in drivetrain("describe", "walk").output


def test_events_of_a_pod_that_does_not_start_are_shown_too(api: FakeApi, drivetrain: Call) -> None:
    api.put("pods", pod(index=1, phase="Pending", conditions=[]))
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"uid": "pod-1"},
        "type": "Warning",
        "reason": "FailedMount",
        "message": "MountVolume.SetUp failed: no such export",
        "lastTimestamp": ago(5),
    }
    api.put("events", event)
    assert "FailedMount" in drivetrain("describe", "walk").output


def test_what_a_user_may_not_see_is_no_reason_to_say_nothing(
    api: FakeApi, drivetrain: Call
) -> None:
    for plural in ("pods", "events"):
        api.answers["GET", plural] = (403, "Forbidden", f"{plural} is forbidden")
    done = drivetrain("describe", "walk")
    assert done.exit_code == 0
    assert done.output.count("(you may not list them)") == 2


def test_a_run_that_nobody_saw_yet(api: FakeApi, drivetrain: Call) -> None:
    raw = training_run("new")
    del raw["status"]
    api.put("trainingruns", raw)
    text = drivetrain("describe", "new").output
    assert "Phase:     Pending\n" in text
    assert "Attempts" not in text


def test_a_finished_run_shows_its_result(api: FakeApi, drivetrain: Call) -> None:
    summary = {
        "status": "completed",
        "totalEnvSteps": 1_000_000,
        "wallTimeSeconds": "7261.5",
        "completedIterations": 2500,
        "finalMeanReward": "9301.25",
        "finalEnvStepsPerSec": "8123.45",
        "wandbRunUrl": "https://wandb.example/runs/1",
        "lostRecords": 3,
        "runDirectory": "logs/fast_sac/hopper/x",
    }
    run = training_run(
        "done", phase="Complete", runSummary=summary, finishedAt=ago(60), attemptRunningAt=None
    )
    del run["status"]["attemptRunningAt"]
    api.put("trainingruns", run)
    text = drivetrain("describe", "done").output
    for words in (
        "Result",
        "Iterations:    2,500",
        "Speed:         8123.4 steps/s",
        "Reward:        9301.2",
        "Last attempt:  2h1m",
        "Page:          https://wandb.example/runs/1",
        "Metrics:       3 records lost by a logger",
        "finished 1m ago",
    ):
        assert words in text, words
    assert "Left:" not in text


def test_the_verdict_of_a_soak_is_shown(api: FakeApi, drivetrain: Call) -> None:
    verdict = {"verdict": "Passed", "attempt": 1, "durationSeconds": 1805, "samples": 361}
    api.put("trainingruns", training_run("soaked", soak=verdict))
    text = drivetrain("describe", "soaked").output
    for words in ("Soak", "Verdict:  Passed", "Watched:  attempt 1 for 30m", "Samples:  361"):
        assert words in text, words


def test_a_suspended_run_says_who_asked(api: FakeApi, drivetrain: Call) -> None:
    raw = training_run("held", phase="Suspended")
    raw["spec"]["suspend"] = True
    raw["metadata"]["annotations"] = {"drivetrain.dev/suspended-by": "ada by kubectl drivetrain"}
    api.put("trainingruns", raw)
    assert "asked for by ada by kubectl drivetrain" in drivetrain("describe", "held").output


def test_a_status_of_a_newer_operator_is_read_as_far_as_it_is_known(
    api: FakeApi, drivetrain: Call
) -> None:
    newer = training_run("newer", wholly="new")
    newer["status"]["progress"]["alsoNew"] = 1
    api.put("trainingruns", newer)
    assert drivetrain("describe", "newer").exit_code == 0
    newer["status"]["conditions"] = [condition("Unheard", True, "Of")]
    api.put("trainingruns", newer)
    done = drivetrain("describe", "newer")
    assert done.exit_code == 1
    assert "status.conditions.0.type" in done.output
    assert "-o yaml shows it as it is" in done.output
    assert drivetrain("describe", "newer", "-o", "yaml").exit_code == 0


def test_one_status_that_cannot_be_read_hides_no_other_run(api: FakeApi, drivetrain: Call) -> None:
    odd = training_run("odd", phase="Failed")
    odd["status"]["attempt"] = -1
    api.put("trainingruns", odd)
    lines = drivetrain("list").output.splitlines()
    assert cells(lines[1])[:2] == ["odd", "Failed"]
    assert cells(lines[2])[:2] == ["walk", "Running"]
    assert lines[4].startswith("odd: status.attempt: Input should be greater than or equal to 0")


def test_artifacts_with_whole_digests_and_where_they_lie(drivetrain: Call) -> None:
    done = drivetrain("artifacts", "walk")
    assert "ab" * 32 in done.output
    assert "paths are below the root of PersistentVolumeClaim walk-storage" in done.stderr
    data = json.loads(drivetrain("artifacts", "walk", "-o", "json").output)
    assert data == {
        "storage": "walk-storage",
        "artifacts": [
            {
                "name": "last_checkpoint",
                "uri": "logs/fast_sac/hopper/x/checkpoints/400000",
                "sha256": "ab" * 32,
                "bytes": 5_500_000,
            }
        ],
    }


def test_a_run_without_artifacts_says_so(api: FakeApi, drivetrain: Call) -> None:
    api.put("trainingruns", training_run("bare", artifacts=[]))
    assert drivetrain("artifacts", "bare").stderr == (
        "bare reported no artifacts yet: it is Running\n"
    )


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("wlak", "did you mean walk?"),
        ("zzz", "there are: walk"),
        ("away", "there is one in namespace den"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_those_that_are(
    api: FakeApi, drivetrain: Call, asked: str, hint: str
) -> None:
    other = training_run("away")
    other["metadata"]["namespace"] = "den"
    api.put("trainingruns", other)
    for command in ("describe", "artifacts", "logs"):
        done = drivetrain(command, asked)
        assert done.exit_code == 1
        assert f"there is no TrainingRun '{asked}' in namespace lab" in done.output
        assert hint in done.output


def test_an_empty_namespace_is_answered_with_what_to_do(drivetrain: Call) -> None:
    assert (
        "it has none; name another one by --namespace"
        in drivetrain("describe", "x", "-n", "empty").output
    )
