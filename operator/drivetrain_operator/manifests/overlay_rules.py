"""What a run's `podTemplate` may not say: what the operator itself relies on.

The Kubernetes schema is not repeated here: the API server checks the merged template.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from drivetrain_api.errors import Violation
from drivetrain_api.explain import show
from drivetrain_operator.manifests.names import TRAINER_CONTAINER
from drivetrain_operator.manifests.overlay import LIST_KEYS
from drivetrain_operator.manifests.pod import SPEC_MOUNT, STORAGE_MOUNT

_POD: Final[Mapping[str, str]] = {
    "restartPolicy": "an attempt restarts as a whole",
    "hostname": "the Job names its pods",
    "subdomain": "it is the attempt's Service",
    "serviceAccount": "it is the run's own account",
    "serviceAccountName": "it is the run's own account",
    "terminationGracePeriodSeconds": "set grace_period_seconds instead",
    "activeDeadlineSeconds": "set deadlines.active_seconds instead",
    "schedulerName": "set scheduler_name instead",
}
_TRAINER: Final[Mapping[str, str]] = {
    "image": "set image instead",
    "command": "it is the launcher",
    "args": "the launcher takes none",
    "terminationMessagePath": "the digest is read there",
    "terminationMessagePolicy": "the digest is read there",
    "restartPolicy": "an attempt restarts as a whole",
}
_VOLUMES: Final[Mapping[str, str]] = {
    "spec": "it holds the attempt's run.json",
    "storage": "set storage instead",
}
_MOUNTS: Final[Mapping[str, str]] = {
    SPEC_MOUNT: "the attempt's run.json is there",
    STORAGE_MOUNT: "set storage instead",
}
_LABEL_PREFIXES: Final = ("drivetrain.dev/", "batch.kubernetes.io/", "app.kubernetes.io/managed-by")
_VARIABLE_PREFIXES: Final = ("DRIVETRAIN_", "PET_")
_OPTIONAL_KEYS: Final = LIST_KEYS["tolerations"]

ROOT: Final = "pod_template"
DEEPEST: Final = 64
"""Levels of a `podTemplate`; a real one has some 15. An API server lets in 10,000, which could
be neither merged nor written."""


def overlay_violations(overlay: Mapping[str, Any] | None) -> tuple[Violation, ...]:
    """Everything that is wrong with a `podTemplate`, with paths and what to do instead."""
    if overlay is None:
        return ()
    if _too_deep(overlay):
        return (Violation(ROOT, f"must have at most {DEEPEST} levels"),)
    return (
        *_only(overlay, ROOT, ("metadata", "spec")),
        *_metadata(_object(overlay, "metadata"), f"{ROOT}.metadata"),
        *_pod(_object(overlay, "spec"), f"{ROOT}.spec"),
        *(_not_an_object(overlay, key, ROOT) for key in ("metadata", "spec") if _odd(overlay, key)),
    )


def _too_deep(overlay: object) -> bool:
    """Whether it nests further than anything that Kubernetes knows; asked without recursion."""
    level = [overlay]
    for _ in range(DEEPEST):
        level = [below for found in level for below in _below(found)]
        if not level:
            return False
    return True


def _below(found: object) -> Iterable[object]:
    if isinstance(found, Mapping):
        return found.values()
    return found if isinstance(found, list) else ()


def _metadata(metadata: Mapping[str, Any], path: str) -> Iterator[Violation]:
    yield from _only(metadata, path, ("labels", "annotations"))
    for key in ("labels", "annotations"):
        if _odd(metadata, key):
            yield _not_an_object(metadata, key, path)
    for label in _object(metadata, "labels"):
        if str(label).startswith(_LABEL_PREFIXES):
            yield Violation(f"{path}.labels.{label}", "this label is the operator's")


def _pod(spec: Mapping[str, Any], path: str) -> Iterator[Violation]:
    yield from _owned(spec, path, _POD)
    for key in ("containers", "initContainers"):
        for place, container in _keyed(spec, key, path):
            if isinstance(container, Violation):
                yield container
            else:
                trainer = key == "containers" and container["name"] == TRAINER_CONTAINER
                yield from _container(container, place, trainer=trainer)
    for place, volume in _keyed(spec, "volumes", path):
        if isinstance(volume, Violation):
            yield volume
        elif volume["name"] in _VOLUMES:
            yield Violation(
                place, f"volume {volume['name']} is the operator's: {_VOLUMES[volume['name']]}"
            )
    yield from (bad for _, bad in _keyed(spec, "tolerations", path) if isinstance(bad, Violation))


def _container(container: Mapping[str, Any], path: str, *, trainer: bool) -> Iterator[Violation]:
    if trainer:
        yield from _owned(container, path, _TRAINER)
    for place, variable in _keyed(container, "env", path):
        if isinstance(variable, Violation):
            yield variable
        elif trainer and variable["name"].startswith(_VARIABLE_PREFIXES):
            yield Violation(place, f"variable {variable['name']} is the operator's")
    for place, mount in _keyed(container, "volumeMounts", path):
        if isinstance(mount, Violation):
            yield mount
        elif trainer and mount["mountPath"] in _MOUNTS:
            yield Violation(
                place,
                f"mountPath {mount['mountPath']} is the operator's: {_MOUNTS[mount['mountPath']]}",
            )


def _keyed(
    parent: Mapping[str, Any], name: str, path: str
) -> Iterator[tuple[str, Mapping[str, Any] | Violation]]:
    """Items of a list that merges by key, each with its path, or what is wrong with it."""
    if name not in parent:
        return
    found = parent[name]
    path = f"{path}.{name}"
    if not isinstance(found, list):
        yield path, Violation(path, f"must be a list; got {show(found)}")
        return
    for index, item in enumerate(found):
        place = f"{path}[{index}]"
        yield place, _item(item, place, LIST_KEYS[name])


def _item(item: object, path: str, keys: tuple[str, ...]) -> Mapping[str, Any] | Violation:
    if not isinstance(item, Mapping):
        return Violation(path, f"must be a mapping; got {show(item)}")
    for key in keys:
        value = item.get(key)
        if value is None and key in _OPTIONAL_KEYS:
            continue
        if not isinstance(value, str) or not value:
            return Violation(
                f"{path}.{key}", f"must be text, as items merge by it; got {show(value)}"
            )
    return item


def _owned(parent: Mapping[str, Any], path: str, owned: Mapping[str, str]) -> Iterator[Violation]:
    for key in parent:
        if key in owned:
            yield Violation(f"{path}.{key}", f"is the operator's: {owned[key]}")


def _only(parent: Mapping[str, Any], path: str, known: tuple[str, ...]) -> Iterator[Violation]:
    for key in parent:
        if key not in known:
            yield Violation(f"{path}.{key}", f"unknown key; known here: {', '.join(known)}")


def _object(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = parent.get(key)
    return found if isinstance(found, Mapping) else {}


def _odd(parent: Mapping[str, Any], key: str) -> bool:
    """Whether a key is there without a mapping; null would take away what is ours, too."""
    return key in parent and not isinstance(parent[key], Mapping)


def _not_an_object(parent: Mapping[str, Any], key: str, path: str) -> Violation:
    return Violation(f"{path}.{key}", f"must be a mapping; got {show(parent[key])}")
