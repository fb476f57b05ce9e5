from __future__ import annotations

import pytest

from drivetrain_operator.cluster import resources
from drivetrain_operator.cluster.resources import (
    CONFIG_MAPS,
    JOBS,
    NAMESPACES,
    PODS,
    TRAINING_RUNS,
    Resource,
    resource_of,
)
from drivetrain_operator.manifests.kinds import ChildKind

PATHS = [
    (PODS, (None,), "/api/v1/pods"),
    (PODS, ("a",), "/api/v1/namespaces/a/pods"),
    (PODS, ("a", "p", "log"), "/api/v1/namespaces/a/pods/p/log"),
    (JOBS, ("a", "j"), "/apis/batch/v1/namespaces/a/jobs/j"),
    (
        TRAINING_RUNS,
        ("a", "r", "status"),
        "/apis/drivetrain.dev/v1alpha1/namespaces/a/trainingruns/r/status",
    ),
    (NAMESPACES, (None, "a"), "/api/v1/namespaces/a"),
    (CONFIG_MAPS, ("a", "x/../y?z"), "/api/v1/namespaces/a/configmaps/x%2F..%2Fy%3Fz"),
]


@pytest.mark.parametrize(("resource", "arguments", "path"), PATHS)
def test_path(resource: Resource, arguments: tuple[str, ...], path: str) -> None:
    assert resource.path(*arguments) == path


REFUSED = [
    (NAMESPACES, ("a",), "namespaces live in no namespace; got 'a'"),
    (PODS, (None, "p"), "pods 'p' needs its namespace"),
    (PODS, ("", "p"), "never empty"),
    (PODS, ("a", ""), "never empty"),
    (PODS, ("a", None, "log"), "pods/log needs a name"),
]


@pytest.mark.parametrize(("resource", "arguments", "words"), REFUSED)
def test_a_path_that_would_mean_something_else_is_refused(
    resource: Resource, arguments: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        resource.path(*arguments)


def test_every_child_kind_has_its_resource() -> None:
    assert {resource_of(kind).kind for kind in ChildKind} == {kind.value for kind in ChildKind}


def test_api_versions() -> None:
    assert (JOBS.api_version, PODS.api_version) == ("batch/v1", "v1")
    known = [r for r in vars(resources).values() if isinstance(r, Resource)]
    assert len({r.path(None) for r in known}) == len(known) == 12
