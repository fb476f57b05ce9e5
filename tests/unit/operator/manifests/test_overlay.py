from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain_operator.manifests.overlay import overlaid
from drivetrain_operator.manifests.overlay_rules import overlay_violations

MERGES = [
    ({}, {}, {}),
    ({"a": 1}, {}, {"a": 1}),
    ({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}),
    ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}),
    ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    ({}, {"a": None}, {}),
    ({"a": {"x": 1}}, {"a": {"x": None}}, {"a": {}}),
    ({}, {"a": {"x": None, "y": 1}}, {"a": {"y": 1}}),
    ({"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}),
    ({"a": {"x": 1}}, {"a": 1}, {"a": 1}),
    ({"other": [1, 2]}, {"other": [3]}, {"other": [3]}),
    # lists with a key merge by it, in our order, new items last
    (
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"env": [{"name": "C", "value": "3"}, {"name": "A", "valueFrom": {"f": 1}}]},
        {
            "env": [
                {"name": "A", "valueFrom": {"f": 1}},
                {"name": "B", "value": "2"},
                {"name": "C", "value": "3"},
            ]
        },
    ),
    (
        {"volumeMounts": [{"mountPath": "/a", "name": "x", "readOnly": True}]},
        {"volumeMounts": [{"mountPath": "/a", "name": "y"}]},
        {"volumeMounts": [{"mountPath": "/a", "name": "y"}]},
    ),
    (
        {"containers": [{"name": "t", "env": [{"name": "A", "value": "1"}], "image": "i"}]},
        {"containers": [{"name": "t", "env": [{"name": "B", "value": "2"}]}, {"name": "s"}]},
        {
            "containers": [
                {
                    "name": "t",
                    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                    "image": "i",
                },
                {"name": "s"},
            ]
        },
    ),
    # a volume of the same source merges, one of another source replaces
    (
        {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1"}}]},
        {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "2"}}]},
        {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "2"}}]},
    ),
    (
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    ),
    # tolerations by key and effect, either of which may be absent
    (
        {"tolerations": [{"key": "k", "effect": "NoExecute", "tolerationSeconds": 30}]},
        {
            "tolerations": [
                {"key": "k", "effect": "NoExecute", "tolerationSeconds": 5},
                {"key": "k", "effect": "NoSchedule"},
                {"operator": "Exists"},
            ]
        },
        {
            "tolerations": [
                {"key": "k", "effect": "NoExecute", "tolerationSeconds": 5},
                {"key": "k", "effect": "NoSchedule"},
                {"operator": "Exists"},
            ]
        },
    ),
    # a free-form map may use any word as a key
    ({"labels": {"env": "dev"}}, {"labels": {"env": "prod"}}, {"labels": {"env": "prod"}}),
]


@pytest.mark.parametrize(("base", "overlay", "merged"), MERGES)
def test_merging(base: dict[str, Any], overlay: dict[str, Any], merged: dict[str, Any]) -> None:
    kept = copy.deepcopy((base, overlay))
    assert overlaid(base, overlay) == merged
    assert (base, overlay) == kept


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), JSON)


def mutables(value: Any) -> set[int]:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return set()
    return {id(value)}.union(*(mutables(item) for item in inner))


@settings(deadline=None)
@given(base=OBJECTS, overlay=OBJECTS)
def test_a_merge_shares_nothing_changes_nothing_and_is_idempotent(
    base: dict[str, Any], overlay: dict[str, Any]
) -> None:
    kept = copy.deepcopy((base, overlay))
    merged = overlaid(base, overlay)
    assert not mutables(merged) & (mutables(base) | mutables(overlay))
    assert overlaid(merged, overlay) == merged
    assert overlaid(merged, {}) == merged
    assert (base, overlay) == kept
    assert set(merged) == {k for k in {**base, **overlay} if overlay.get(k, 0) is not None}


def trainer(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "trainer"} | fields]}}


ACCEPTED: list[dict[str, Any] | None] = [
    None,
    {},
    {"metadata": {}, "spec": {"containers": [], "securityContext": None}},
    {"metadata": {"labels": {"team": "legs", "env": "prod"}, "annotations": {"x": "y"}}},
    {"spec": {"nodeSelector": {"env": "prod"}, "priorityClassName": "high"}},
    {"spec": {"tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {}}}},
    trainer(resources={"limits": {"memory": "8Gi"}}, env=[{"name": "A", "value": "1"}]),
    trainer(volumeMounts=[{"mountPath": "/data", "name": "d"}]),
    {"spec": {"containers": [{"name": "sidecar", "image": "s", "command": ["run"]}]}},
    {"spec": {"initContainers": [{"name": "trainer", "image": "s", "command": ["run"]}]}},
    {"spec": {"volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "8Gi"}}]}},
]


@pytest.mark.parametrize("overlay", ACCEPTED)
def test_what_is_the_runs_to_say_is_accepted(overlay: dict[str, Any] | None) -> None:
    assert overlay_violations(overlay) == ()


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"template": {}}, "pod_template.template", "known here: metadata, spec"),
    ({"metadata": []}, "pod_template.metadata", "must be a mapping; got []"),
    ({"metadata": None}, "pod_template.metadata", "must be a mapping; got null"),
    ({"metadata": {"labels": None}}, "pod_template.metadata.labels", "got null"),
    ({"spec": {"containers": None}}, "pod_template.spec.containers", "got null"),
    (trainer(env=None), "pod_template.spec.containers[0].env", "must be a list"),
    (trainer(command=None), "pod_template.spec.containers[0].command", "it is the launcher"),
    ({"spec": "x"}, "pod_template.spec", 'must be a mapping; got "x"'),
    ({"metadata": {"name": "x"}}, "pod_template.metadata.name", "known here"),
    ({"metadata": {"labels": 5}}, "pod_template.metadata.labels", "got 5"),
    (
        {"metadata": {"labels": {"drivetrain.dev/attempt": "9"}}},
        "pod_template.metadata.labels.drivetrain.dev/attempt",
        "the operator's",
    ),
    (
        {"metadata": {"labels": {"batch.kubernetes.io/job-name": "x"}}},
        "pod_template.metadata.labels.batch.kubernetes.io/job-name",
        "the operator's",
    ),
    *(
        ({"spec": {key: "x"}}, f"pod_template.spec.{key}", "the operator's")
        for key in (
            "restartPolicy",
            "hostname",
            "subdomain",
            "serviceAccountName",
            "serviceAccount",
        )
    ),
    (
        {"spec": {"terminationGracePeriodSeconds": 5}},
        "pod_template.spec.terminationGracePeriodSeconds",
        "set grace_period_seconds",
    ),
    (
        {"spec": {"activeDeadlineSeconds": 5}},
        "pod_template.spec.activeDeadlineSeconds",
        "set deadlines.active_seconds",
    ),
    ({"spec": {"schedulerName": "x"}}, "pod_template.spec.schedulerName", "set scheduler_name"),
    *(
        (trainer(**{key: "x"}), f"pod_template.spec.containers[0].{key}", "the operator's")
        for key in ("image", "command", "args", "terminationMessagePath", "restartPolicy")
    ),
    (
        trainer(env=[{"name": "OK"}, {"name": "PET_NNODES", "value": "9"}]),
        "pod_template.spec.containers[0].env[1]",
        "PET_NNODES is the operator's",
    ),
    (
        trainer(env=[{"name": "DRIVETRAIN_STORAGE", "value": "/"}]),
        "pod_template.spec.containers[0].env[0]",
        "DRIVETRAIN_STORAGE",
    ),
    (
        trainer(volumeMounts=[{"mountPath": "/etc/drivetrain", "name": "x"}]),
        "pod_template.spec.containers[0].volumeMounts[0]",
        "/etc/drivetrain is the operator's",
    ),
    (
        {"spec": {"volumes": [{"name": "storage", "emptyDir": {}}]}},
        "pod_template.spec.volumes[0]",
        "set storage instead",
    ),
    ({"spec": {"containers": {}}}, "pod_template.spec.containers", "must be a list; got {}"),
    ({"spec": {"containers": ["x"]}}, "pod_template.spec.containers[0]", "must be a mapping"),
    ({"spec": {"containers": [{}]}}, "pod_template.spec.containers[0].name", "must be text"),
    ({"spec": {"volumes": [{"name": 5}]}}, "pod_template.spec.volumes[0].name", "must be text"),
    (trainer(env={"A": "1"}), "pod_template.spec.containers[0].env", "must be a list"),
    (
        trainer(volumeMounts=[{"name": "x"}]),
        "pod_template.spec.containers[0].volumeMounts[0].mountPath",
        "must be text",
    ),
    ({"spec": {"tolerations": [{"key": 5}]}}, "pod_template.spec.tolerations[0].key", "text"),
    ({"spec": {"tolerations": "all"}}, "pod_template.spec.tolerations", "must be a list"),
]


@pytest.mark.parametrize(("overlay", "path", "words"), REFUSED)
def test_what_is_not_is_refused_with_its_path(
    overlay: dict[str, Any], path: str, words: str
) -> None:
    (violation,) = overlay_violations(overlay)
    assert violation.path == path
    assert words in violation.message


def test_every_violation_is_told() -> None:
    overlay = {
        "metadata": {"name": "x"},
        "spec": {"hostname": "h", "containers": [{"name": "trainer", "args": []}, {}]},
    }
    assert len(overlay_violations(overlay)) == 4


TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": JSON,
        "spec": JSON
        | st.dictionaries(
            st.sampled_from(["containers", "initContainers", "volumes", "tolerations", "x"]),
            JSON | st.lists(st.dictionaries(st.sampled_from(["name", "env", "key"]), JSON)),
        ),
    },
)
BASE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "containers": [{"name": "trainer", "env": [{"name": "A"}], "volumeMounts": []}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "k"}],
    },
}


@settings(deadline=None)
@given(TEMPLATES)
def test_whatever_is_accepted_can_be_merged(overlay: dict[str, Any]) -> None:
    if not overlay_violations(overlay):
        merged = overlaid(BASE, overlay)
        names = [c["name"] for c in merged["spec"]["containers"]]
        assert names[0] == "trainer"
        assert len(names) == len(set(names))
