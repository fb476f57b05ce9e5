"""Soak artifact 0.3.0: what a verdict must hold, and every altered copy refused."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.soak import (
    MonitorFailure,
    ProducerFailure,
    SoakArtifact,
    completion_problem,
    producer_failure,
)
from drivetrain_api.compose import parse_run
from drivetrain_api.errors import SpecError
from drivetrain_api.soak import Resource, SoakConfig

FIGURES = {
    "processes": 3,
    "rss_bytes": 900,
    "pss_bytes": 700,
    "fds": 40,
    "threads": 12,
    "shm_bytes": 0,
    "gpu_bytes": None,
}
NORMAL = {
    "classification": "normal_completion",
    "owner": "learner",
    "phase": "finish",
    "cleanup": {"errors": []},
    "anything": {"else": [1]},
}
PASSED: dict[str, Any] = {
    "schema_version": "0.3.0",
    "status": "passed",
    "failure_reason": None,
    "failure_classification": None,
    "command": ["drivetrain", "run"],
    "context": {"host": "here"},
    "started_at_utc": "2026-03-09T18:30:00Z",
    "ended_at_utc": "2026-03-09T19:00:00Z",
    "duration_s": 1800.0,
    "returncode": 0,
    "monitor": {
        "sample_s": 5.0,
        "start_s": 600.0,
        "stale_s": 120.0,
        "grace_s": 5.0,
        "warm_up_s": 60.0,
        "duration_s": None,
        "throughput_decay": 0.5,
        "raw_samples": 360,
        "cpu_s": 1.5,
        "torn_reads": 0,
        "findings": [],
    },
    "samples": [
        {
            "at_s": 5.0,
            "raw_samples": 1,
            "mean": FIGURES,
            "peak": FIGURES,
            "iteration": 3,
            "env_steps": 24,
            "env_steps_per_sec": 4.8,
        }
    ],
    "resource_summary": {
        "judged_samples": 1,
        "resources": {
            "rss": {"first": 900, "last": 900, "peak": 900, "growth": None, "limit": 1000}
        },
        "throughput": {"median": 4.8, "first": None, "last": None},
    },
    "shutdown": NORMAL,
    "post_shutdown": {"residual_processes": [], "residual_shm": []},
    "run_summary": {"status": "completed"},
    "console_log": None,
}
FINDING = {"rule": "growth.rss", "classification": "resource_leak", "message": "grew"}


def altered(change: Callable[[dict[str, Any]], Any]) -> str:
    document = copy.deepcopy(PASSED)
    change(document)
    return json.dumps(document)


def failed(kind: str, shutdown: Any = NORMAL, **fields: Any) -> str:
    return altered(
        lambda d: d.update(
            {
                "status": "failed",
                "failure_reason": "why",
                "failure_classification": kind,
                "shutdown": shutdown,
                **fields,
            }
        )
    )


def test_a_passed_soak_is_read_and_written_again_as_it_was() -> None:
    text = json.dumps(PASSED)
    again = SoakArtifact.from_json(SoakArtifact.from_json(text).to_json())
    assert again == SoakArtifact.from_json(text)
    assert again.shutdown == NORMAL


def test_what_a_later_release_adds_is_ignored() -> None:
    text = altered(lambda d: (d.update(new=1), d["monitor"].update(new=2)))
    assert SoakArtifact.from_json(text) == SoakArtifact.from_json(json.dumps(PASSED))


@pytest.mark.parametrize("version", ["0.2.0", "0.3", "0.3.1", "1", 1, 0.3, None, True, ["0.3.0"]])
def test_another_version_is_refused_by_that(version: Any) -> None:
    with pytest.raises(ArtifactError, match=r"only '0.3.0' is supported"):
        SoakArtifact.from_json(altered(lambda d: d.update(schema_version=version)))


def test_a_version_that_is_missing_is_not_guessed() -> None:
    with pytest.raises(ArtifactError, match="schema_version is missing"):
        SoakArtifact.from_json(altered(lambda d: d.pop("schema_version")))


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"schema_version": NaN}', "[" * 5000])
def test_what_is_no_artifact_is_refused(text: str) -> None:
    with pytest.raises(ArtifactError, match="not a soak artifact"):
        SoakArtifact.from_json(text)


@pytest.mark.parametrize("name", sorted(set(PASSED) - {"schema_version"}))
def test_every_field_is_required(name: str) -> None:
    with pytest.raises(ArtifactError, match=name):
        SoakArtifact.from_json(altered(lambda d: d.pop(name)))


@pytest.mark.parametrize("name", sorted(set(PASSED) - {"schema_version", "context"}))
def test_a_field_of_another_type_is_refused(name: str) -> None:
    with pytest.raises(ArtifactError, match=name):
        SoakArtifact.from_json(altered(lambda d: d.update({name: True})))


OPAQUE = ("context", "shutdown", "run_summary")
"""Sections whose contents are the producer's."""
NULLABLE = frozenset(
    {
        *("failure_reason", "failure_classification", "returncode", "console_log", "duration_s"),
        *("pss_bytes", "gpu_bytes", "iteration", "env_steps", "env_steps_per_sec", "growth"),
        *("shutdown", "run_summary"),
    }
)
Place = tuple[str | int, ...]


def places(value: Any, below: Place = ()) -> Iterator[Place]:
    """Every field of the artifact that is not the producer's, however deep."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*below, key)
        if isinstance(item, dict | list) and key not in OPAQUE:
            yield from places(item, (*below, key))


FIELDS = [place for place in places(PASSED) if isinstance(place[-1], str)]
OF_A_RESOURCE = ("resource_summary", "resources", "rss")
DEFAULTED = ("post_shutdown", "residual_shm")


def at(document: Any, place: Place) -> Any:
    for key in place[:-1]:
        document = document[key]
    return document


@pytest.mark.parametrize("place", FIELDS, ids=str)
def test_a_field_that_was_removed_is_refused_however_deep(place: Place) -> None:
    text = altered(lambda d: at(d, place).pop(place[-1]))
    if place in (OF_A_RESOURCE, DEFAULTED):
        SoakArtifact.from_json(text)
        return
    with pytest.raises(ArtifactError, match=str(place[-1])):
        SoakArtifact.from_json(text)


@pytest.mark.parametrize("wrong", ["no number", True, -1, None, math.nan, [[1]]], ids=repr)
@pytest.mark.parametrize("place", FIELDS, ids=str)
def test_a_field_of_another_kind_is_refused_however_deep(place: Place, wrong: Any) -> None:
    null = wrong is None and (place[-1] in NULLABLE or "throughput" in place[:-1])
    text = wrong == "no number" and place == ("console_log",)
    if null or text or (wrong == -1 and place[-1] == "growth"):
        return
    with pytest.raises(ArtifactError):
        SoakArtifact.from_json(altered(lambda d: at(d, place).update({place[-1]: wrong})))


BROKEN_PASSES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a reason": lambda d: d.update(failure_reason="why"),
    "a classification": lambda d: d.update(failure_classification="resource_leak"),
    "a returncode": lambda d: d.update(returncode=1),
    "no returncode": lambda d: d.update(returncode=None),
    "a finding": lambda d: d["monitor"]["findings"].append(FINDING),
    "a process": lambda d: d["post_shutdown"]["residual_processes"].append(
        {"pid": 7, "name": "python", "command": "python"}
    ),
    "no shutdown": lambda d: d.update(shutdown=None),
    "another end": lambda d: d["shutdown"].update(classification="learner_failure"),
    "an empty owner": lambda d: d["shutdown"].update(owner=""),
    "no owner": lambda d: d["shutdown"].pop("owner"),
    "a phase that is no text": lambda d: d["shutdown"].update(phase=3),
    "an error of the clean-up": lambda d: d["shutdown"]["cleanup"]["errors"].append("late"),
    "a clean-up that is none": lambda d: d["shutdown"].update(cleanup="fine"),
}


@pytest.mark.parametrize("name", BROKEN_PASSES)
def test_no_pass_with(name: str) -> None:
    with pytest.raises(ArtifactError, match="a passed soak"):
        SoakArtifact.from_json(altered(BROKEN_PASSES[name]))


@pytest.mark.parametrize("missing", ["failure_reason", "failure_classification"])
def test_a_failure_has_both_a_reason_and_a_class(missing: str) -> None:
    with pytest.raises(ArtifactError, match="a failed soak has"):
        SoakArtifact.from_json(failed("resource_leak", **{missing: None}))


@pytest.mark.parametrize("kind", list(ProducerFailure))
def test_the_producers_class_takes_precedence(kind: ProducerFailure) -> None:
    told = {**NORMAL, "classification": kind.value}
    assert producer_failure(told) is kind
    found = SoakArtifact.from_json(failed(kind.value, told)).failure_classification
    assert found is not None
    assert found.value == kind.value
    with pytest.raises(ArtifactError, match=r"is not .*, which shutdown.classification names"):
        SoakArtifact.from_json(failed("resource_leak", told))


@pytest.mark.parametrize("kind", list(MonitorFailure))
@pytest.mark.parametrize("shutdown", [None, NORMAL, {"classification": "fine"}])
def test_else_the_monitors_own_holds(kind: MonitorFailure, shutdown: Any) -> None:
    found = SoakArtifact.from_json(failed(kind.value, shutdown)).failure_classification
    assert found is not None
    assert found.value == kind.value


def test_a_class_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ArtifactError, match="failure_classification"):
        SoakArtifact.from_json(failed("bad_luck"))


@pytest.mark.parametrize("told", [None, True, 3, ["learner_failure"], "normal_completion", "x"])
def test_a_hostile_class_names_no_failure(told: Any) -> None:
    assert producer_failure({"classification": told}) is None


def test_a_shutdown_without_a_clean_up_had_no_errors() -> None:
    assert completion_problem({key: NORMAL[key] for key in NORMAL if key != "cleanup"}) is None


def manifest(**soak: Any) -> dict[str, Any]:
    return {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "x"},
        "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}, "soak": soak},
    }


def test_the_defaults_of_a_soak() -> None:
    config = parse_run(manifest()).spec.soak
    assert config == SoakConfig()
    assert (config.sample_seconds, config.start_seconds) == (5, 600)
    assert (config.stale_seconds, config.grace_seconds) == (120, 5)
    assert config.duration_seconds is None
    assert {resource: config.growth.limit(resource) for resource in Resource} == {
        Resource.RSS: 256 << 20,
        Resource.PSS: 256 << 20,
        Resource.FDS: 32,
        Resource.THREADS: 16,
        Resource.SHM: 64 << 20,
        Resource.GPU: 256 << 20,
    }


@pytest.mark.parametrize(
    ("soak", "path"),
    [
        ({"sampleSeconds": 0}, "soak.sample_seconds"),
        ({"sampleSeconds": True}, "soak.sample_seconds"),
        ({"sampleSeconds": 1.5}, "soak.sample_seconds"),
        ({"staleSeconds": "120"}, "soak.stale_seconds"),
        ({"durationSeconds": 9}, "soak.duration_seconds"),
        ({"throughputDecayPercent": 100}, "soak.throughput_decay_percent"),
        ({"growth": {"fds": 0}}, "soak.growth.fds"),
        ({"growth": {"disk": 1}}, "soak.growth.disk"),
        ({"sample": 5}, "soak.sample"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_path(soak: dict[str, Any], path: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_run(manifest(**soak))
    assert [violation.path for violation in refused.value.violations] == [path]


def test_ppo_is_refused_by_name() -> None:
    document = manifest()
    document["spec"]["algo"]["name"] = "ppo"
    with pytest.raises(SpecError, match="soak: ppo cannot be soaked: it writes no runtime"):
        parse_run(document)
