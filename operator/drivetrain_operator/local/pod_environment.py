"""Command and environment of a container, resolved as a kubelet would."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api import labels
from drivetrain_operator.local.pod_layout import (
    CANNOT_RUN,
    TEMPORARY_MOUNT,
    Layout,
    Object,
    PodStartError,
)
from drivetrain_operator.local.processes import TOKEN_VARIABLE
from drivetrain_operator.local.settings import LAUNCHER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_operator.local.settings import LocalSettings

_FOREIGN_PREFIXES: Final = ("DRIVETRAIN_", "PET_")
"""Variables of our own environment that a pod must never see."""
_OURS: Final = frozenset({labels.ENV_SOAK_SECONDS})
"""But for what `drivetrain soak` tells the ranks below it."""


@dataclass(frozen=True)
class Rendezvous:
    """Where the ranks of a Job meet: the headless Service's names resolve to nothing here."""

    address: str
    port: int


@dataclass(frozen=True)
class PodPaths:
    """Files that a pod and its backend meet at."""

    work: Path
    """The pod's working folder."""
    progress: Path
    """The run's folder of progress reports, a file for each progress ConfigMap."""

    @property
    def termination_log(self) -> Path:
        """The termination message file."""
        return self.work / "termination-log"

    def progress_file(self, config_map: str) -> Path:
        """What stands for the entry of a progress ConfigMap."""
        return self.progress / f"{config_map}.json"


@dataclass(frozen=True)
class Command:
    """What to execute."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


def resolve(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    *,
    layout: Layout,
    paths: PodPaths,
    rendezvous: Rendezvous,
    token: str,
    config_maps: Mapping[str, Object],
    settings: LocalSettings,
) -> Command:
    """The command line and the whole environment of a pod's process.

    Raises:
        PodStartError: a variable whose source does not exist here.
    """
    declared: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        declared |= _env_from(source, config_maps)
    for entry in container.get("env", ()):
        value = _value(entry, pod, config_maps, settings)
        if (entry["name"], value) == ("HOME", TEMPORARY_MOUNT):
            continue  # a container has no home to go to; the user has
        declared[entry["name"]] = _expanded(layout.translate(value), declared)
    declared |= _local_meaning(declared, paths, rendezvous)
    environment = {
        name: value
        for name, value in settings.environment.items()
        if name in _OURS or not name.startswith(_FOREIGN_PREFIXES)
    }
    environment["PATH"] = settings.search_path()
    if TEMPORARY_MOUNT in layout.folders:
        environment["TMPDIR"] = str(layout.folders[TEMPORARY_MOUNT])
    environment |= declared
    environment[TOKEN_VARIABLE] = token
    words = [
        _expanded(layout.translate(word), declared)
        for word in (*container.get("command", ()), *container.get("args", ()))
    ]
    if words[:1] == [LAUNCHER]:
        words[:1] = settings.launcher
    return Command(tuple(words), environment)


def _local_meaning(
    declared: Mapping[str, str], paths: PodPaths, rendezvous: Rendezvous
) -> dict[str, str]:
    """Variables whose value on a cluster means nothing on one machine."""
    changed = {labels.ENV_TERMINATION_LOG: str(paths.termination_log)}
    kind, _, name = declared.get(labels.ENV_PROGRESS_SINK, "").partition(":")
    if kind == "configmap":
        changed[labels.ENV_PROGRESS_SINK] = f"file:{paths.progress_file(name)}"
    if "PET_MASTER_ADDR" in declared:
        changed["PET_MASTER_ADDR"] = rendezvous.address
    if "PET_MASTER_PORT" in declared:
        changed["PET_MASTER_PORT"] = str(rendezvous.port)
    return changed


def _value(
    entry: Mapping[str, Any],
    pod: Mapping[str, Any],
    config_maps: Mapping[str, Object],
    settings: LocalSettings,
) -> str:
    source = entry.get("valueFrom")
    if source is None:
        return str(entry.get("value", ""))
    if "fieldRef" in source:
        return _field(pod, source["fieldRef"]["fieldPath"])
    if "configMapKeyRef" in source:
        reference = source["configMapKeyRef"]
        found = _data(config_maps, reference).get(reference["key"])
    else:
        # A Secret's value comes from the user's own environment, where it mostly is anyway.
        reference = next(iter(source.values()))
        found = settings.environment.get(entry["name"])
    if found is None and not reference.get("optional", False):
        raise PodStartError(
            CANNOT_RUN,
            f"variable {entry['name']} comes from {', '.join(source)}, which does not exist "
            f"here; set {entry['name']} in the environment of the command instead",
        )
    return found or ""


def _env_from(source: Mapping[str, Any], config_maps: Mapping[str, Object]) -> dict[str, str]:
    reference = source.get("configMapRef")
    if reference is None:
        name = source.get("secretRef", {}).get("name")
        raise PodStartError(CANNOT_RUN, f"secret {name!r} does not exist here")
    prefix = source.get("prefix", "")
    return {f"{prefix}{key}": text for key, text in _data(config_maps, reference).items()}


def _data(config_maps: Mapping[str, Object], reference: Mapping[str, Any]) -> Mapping[str, str]:
    found = config_maps.get(reference["name"])
    if found is None and not reference.get("optional", False):
        raise PodStartError(CANNOT_RUN, f'configmap "{reference["name"]}" not found')
    data: Mapping[str, str] = (found or {}).get("data", {})
    return data


def _field(pod: Mapping[str, Any], path: str) -> str:
    """A downward API field: ``metadata.annotations['key']``, ``metadata.name``..."""
    keyed = re.fullmatch(r"metadata\.(annotations|labels)\['([^']+)'\]", path)
    if keyed:
        return str(pod["metadata"].get(keyed[1], {}).get(keyed[2], ""))
    simple = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": os.uname().nodename,
        "status.podIP": "127.0.0.1",
        "status.hostIP": "127.0.0.1",
    }
    if path not in simple:
        raise PodStartError(CANNOT_RUN, f"field {path} is not known here")
    return str(simple[path])


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced by a variable declared before; ``$$`` escapes; others stay."""

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)", replaced, text)
