from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.runtime_manifest import (
    CompletedManifest,
    RuntimeManifest,
    read_manifest,
)

Path = tuple[str, ...]

MPS = {
    "configured": "mps",
    "effective": "mps",
    "validated": True,
    "rank": 0,
    "world_size": 1,
    "learner_device": "cuda:0",
    "collector_device": "cuda:0",
    "learner_gpu_uuid": "GPU-1f2e3d4c",
    "collector_gpu_uuid": "GPU-1f2e3d4c",
    "pipe_directory_env": "/run/mps",
    "pipe_directory": "/run/mps",
    "control_pipe": "/run/mps/control",
    "control_pipe_kind": "fifo",
    "server_pid": 12,
    "ambient_server": False,
}

WHOLE: dict[str, Any] = {
    "schema_version": 1,
    "inference_ring_capacity": 2,
    "collector_metrics_interval": 100,
    "collector_backend_device": "cuda:0",
    "inference_flight": {
        "queue_depth": 0,
        "publication_lag": 0,
        "max_in_flight": 2,
        "max_publication_lag": 1,
    },
    "replay_ingress": {
        "ingress_depth": 2,
        "ingress_slot_rows": 64,
        "published_sequence": 40,
        "release_sequence": 40,
        "occupancy": 0,
        "high_water_occupancy": 2,
        "backpressure_waits": 3,
        "backpressure_wait_s": 0.25,
        "early_returns": 0,
        "dropped_batches": 0,
        "closed_returns": 0,
        "stop_returns": 0,
    },
    "inference_memory_budget": {"ipc_event_count": 6, "ring_bytes": 4096},
    "tensor_memory_budget": {"total": 1 << 30, "parts": {"replay": 1 << 29}},
    "runtime_limits": {
        "replay_ingress_depth": {"configured": 4, "default": 2, "effective": 4, "maximum": 16},
        "replay_ingress_slot_rows": {
            "configured": None,
            "default": None,
            "effective": 64,
            "maximum": 64,
        },
    },
    "devices": {"learner": "cuda:0", "collector_tensor": "cuda:0"},
    "cuda_process_sharing": MPS,
    "backend_diagnostics": {
        "available": True,
        "backend_type": "mjwarp",
        "diagnostics": {
            "cuda_graph": {"requested": True, "enabled": True, "disable_reason": None, "nodes": 7}
        },
    },
    "shutdown": {"classification": "normal_completion", "cleanup": {"errors": []}},
}

OPTIONAL_SECTIONS = frozenset(
    {
        "inference_memory_budget",
        "tensor_memory_budget",
        "runtime_limits",
        "devices",
        "cuda_process_sharing",
        "backend_diagnostics",
        "shutdown",
    }
)
STABLE = (
    "schema_version",
    "inference_ring_capacity",
    "collector_metrics_interval",
    "collector_backend_device",
    "inference_flight",
    "replay_ingress",
)
PRODUCERS_OWN: tuple[Path, ...] = (
    ("tensor_memory_budget",),
    ("shutdown",),
    ("devices",),
    ("inference_memory_budget", "ring_bytes"),
    ("backend_diagnostics", "diagnostics", "cuda_graph", "nodes"),
    ("cuda_process_sharing",),  # a rank that shares nothing may leave out most of it
)
"""Paths below which a field may be anything finite."""


def paths(mapping: dict[str, Any], below: Path = ()) -> Iterator[Path]:
    for key, value in mapping.items():
        yield (*below, key)
        if isinstance(value, dict):
            yield from paths(value, (*below, key))


def changed(path: Path, value: object) -> dict[str, Any]:
    found = copy.deepcopy(WHOLE)
    _parent(found, path)[path[-1]] = value
    return found


def without(path: Path) -> dict[str, Any]:
    found = copy.deepcopy(WHOLE)
    del _parent(found, path)[path[-1]]
    return found


def _parent(mapping: dict[str, Any], path: Path) -> dict[str, Any]:
    for key in path[:-1]:
        mapping = mapping[key]
    return mapping


def is_own(path: Path) -> bool:
    return any(path[: len(own)] == own for own in PRODUCERS_OWN)


TYPED = [path for path in paths(WHOLE) if not is_own(path)]
REQUIRED = [
    path
    for path in TYPED
    if not (len(path) == 1 and path[0] in OPTIONAL_SECTIONS)
    and path[:2] != ("backend_diagnostics", "diagnostics")
    and not (path[0] == "runtime_limits" and len(path) == 2)
]


def refusal(mapping: object) -> str:
    with pytest.raises(ArtifactError) as refused:
        read_manifest(mapping, completed=True)
    return str(refused.value)


def named(path: Path) -> tuple[str, ...]:
    """What a refusal of `path` may name: it, or the section that it makes incomplete."""
    return (".".join(path), ".".join(path[:-1]) or path[0])


def test_a_whole_manifest_is_read_and_written_without_a_change() -> None:
    assert CompletedManifest.model_validate(WHOLE).as_mapping() == WHOLE
    assert json.loads(CompletedManifest.model_validate(WHOLE).to_json()) == WHOLE
    assert read_manifest(WHOLE, completed=True).replay_ingress is not None


@pytest.mark.parametrize("path", REQUIRED, ids=".".join)
def test_a_manifest_without_a_field_is_refused_by_name(path: Path) -> None:
    message = refusal(without(path))
    assert any(name in message for name in named(path))


@pytest.mark.parametrize("value", ["1", True, 1.5, [1], {"a": 1}, None], ids=repr)
@pytest.mark.parametrize("path", TYPED, ids=".".join)
def test_a_retyped_field_is_refused_by_name(path: Path, value: object) -> None:
    original: Any = WHOLE
    for key in path:
        original = original[key]
    if _allows(path, original, value):
        return
    message = refusal(changed(path, value))
    assert any(name in message for name in named(path))


def _allows(path: Path, original: object, value: object) -> bool:
    if type(original) is type(value) and not isinstance(original, dict):
        return True
    nullable = ("collector_backend_device", "configured", "default")
    if value is None and path[-1] in nullable:
        return True
    # A text is a text, a flag a flag: what it says is checked elsewhere.
    text = isinstance(value, str) and path[-1] == "collector_backend_device"
    return text or (value == 1.5 and path[-1] == "backpressure_wait_s")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("path", list(paths(WHOLE)), ids=".".join)
def test_a_number_that_is_none_is_refused_by_name_wherever_it_stands(
    path: Path, value: float
) -> None:
    message = refusal(changed(path, value))
    assert any(name in message for name in named(path))


@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True, None])
def test_another_version_is_refused(version: object) -> None:
    assert "schema_version" in refusal(changed(("schema_version",), version))


@pytest.mark.parametrize("mapping", [None, [], "x", 1, {}])
def test_what_is_no_manifest_is_refused(mapping: object) -> None:
    assert "runtime manifest of version 1" in refusal(mapping)


@pytest.mark.parametrize("path", [(name,) for name in OPTIONAL_SECTIONS], ids=".".join)
def test_sections_that_a_run_has_none_of_are_left_out(path: Path) -> None:
    manifest = CompletedManifest.of(without(path))
    assert path[0] not in manifest.as_mapping()


def test_a_run_that_has_only_begun_has_no_counters_yet() -> None:
    begun = {name: WHOLE[name] for name in STABLE[:3]}
    assert read_manifest(begun, completed=False).as_mapping() == begun
    with pytest.raises(ArtifactError, match="collector_backend_device") as refused:
        read_manifest(begun, completed=True)
    assert "inference_flight" in str(refused.value)
    assert "replay_ingress" in str(refused.value)


def test_a_backend_without_an_accelerator_is_null_not_absent() -> None:
    assert "collector_backend_device" in refusal(without(("collector_backend_device",)))
    manifest = CompletedManifest.of(changed(("collector_backend_device",), None))
    assert manifest.as_mapping()["collector_backend_device"] is None


def test_readers_ignore_what_a_later_minor_version_added_and_writers_do_not_add_it() -> None:
    later = changed(("replay_ingress", "compressed_chunks"), 3) | {"novelty": {"a": 1}}
    assert read_manifest(later, completed=True).inference_ring_capacity == 2
    with pytest.raises(ValidationError, match="novelty"):
        RuntimeManifest.model_validate(later)


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        ("replay_ingress", "release_sequence", 41, "ahead of published_sequence 40"),
        ("replay_ingress", "occupancy", 3, "above ingress_depth 2"),
        ("replay_ingress", "high_water_occupancy", 3, "above ingress_depth 2"),
        ("replay_ingress", "backpressure_wait_s", -0.1, "greater than or equal to 0"),
        ("replay_ingress", "dropped_batches", -1, "greater than or equal to 0"),
    ],
)
def test_impossible_counters_are_refused(section: str, key: str, value: object, words: str) -> None:
    assert words in refusal(changed((section, key), value))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"configured": None, "default": 1, "effective": 17, "maximum": 16}, "above maximum 16"),
        ({"configured": 3, "default": 1, "effective": 2, "maximum": 16}, "is not effective 2"),
    ],
)
def test_limits_that_contradict_themselves_are_refused(
    limits: dict[str, object], words: str
) -> None:
    assert words in refusal(changed(("runtime_limits", "replay_ingress_depth"), limits))


REQUESTED = {"requested": True, "enabled": False, "disable_reason": "no CUDA"}


@pytest.mark.parametrize(
    "section",
    [
        {"available": True, "backend_type": "mujoco", "diagnostics": {}},
        {"available": True, "backend_type": "mjwarp", "diagnostics": {"cuda_graph": REQUESTED}},
        {"available": False, "unavailable_reason": "the collector died"},
    ],
)
def test_backend_diagnostics_that_hold_together(section: dict[str, object]) -> None:
    manifest = CompletedManifest.of(changed(("backend_diagnostics",), section))
    assert manifest.as_mapping()["backend_diagnostics"] == section


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"available": True},
        {"available": True, "backend_type": "mujoco"},
        {"available": True, "diagnostics": {}},
        {"available": True, "backend_type": "x", "diagnostics": {}, "unavailable_reason": "y"},
        {"available": False},
        {"available": False, "unavailable_reason": ""},
        {"available": False, "unavailable_reason": "y", "backend_type": "x"},
        {"available": False, "unavailable_reason": "y", "diagnostics": {}},
        {"available": True, "backend_type": "x", "diagnostics": {"g": {"requested": True}}},
        {"available": True, "backend_type": "x", "diagnostics": {"g": REQUESTED | {"enabled": 1}}},
        {
            "available": True,
            "backend_type": "x",
            "diagnostics": {"g": REQUESTED | {"enabled": True}},
        },
        {
            "available": True,
            "backend_type": "x",
            "diagnostics": {"g": REQUESTED | {"disable_reason": None}},
        },
        {
            "available": True,
            "backend_type": "x",
            "diagnostics": {"g": REQUESTED | {"disable_reason": ""}},
        },
    ],
    ids=str,
)
def test_backend_diagnostics_fail_closed(section: dict[str, object]) -> None:
    assert "backend_diagnostics" in refusal(changed(("backend_diagnostics",), section))


def test_sharing_that_says_validated_without_evidence_is_refused() -> None:
    claimed = {name: value for name, value in MPS.items() if name != "server_pid"}
    assert "server_pid" in refusal(changed(("cuda_process_sharing",), claimed))


def test_a_section_nested_without_end_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(40):
        deep = {"a": deep}
    assert "nested" in refusal(changed(("shutdown",), deep))
