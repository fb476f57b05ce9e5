"""A pod's volumes as folders, and mount paths translated to them.

Processes share the machine's file system, so a mount path is not what it is in a pod: it is
replaced wherever a container's command, arguments and variables speak of it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]

MACHINE_MOUNTS: Final = ("/dev/shm",)  # noqa: S108 - a mount path in a template, nothing is written
"""Mount paths that stand for the machine's own."""
TEMPORARY_MOUNT: Final = "/tmp"  # noqa: S108 - likewise

CANNOT_RUN: Final = "ContainerCannotRun"
"""Reason of a container that wants what does not exist here: no waiting would bring it."""


class PodStartError(RuntimeError):
    """A pod that cannot start here, with the reason a kubelet would give."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True)
class Layout:
    """Where a pod's mount paths lie on this machine."""

    folders: Mapping[str, Path]

    def translate(self, text: str) -> str:
        """`text` with every mount path replaced by its folder, in one pass, longest first."""
        if not self.folders:
            return text
        mounts = sorted(self.folders, key=len, reverse=True)
        pattern = rf"(?<![\w./-])({'|'.join(map(re.escape, mounts))})(?=[/:,;\s]|$)"
        return re.sub(pattern, lambda match: str(self.folders[match[1]]), text)


def temporary_folder(pod_uid: str) -> Path:
    """The pod's own /tmp: short, for a socket's path has 107 bytes at most."""
    return Path(tempfile.gettempdir()) / f"drivetrain-{pod_uid[:13]}"


def lay_out(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    *,
    work: Path,
    storage: Path,
    config_maps: Mapping[str, Object],
) -> Layout:
    """Make the folders of a pod's volumes.

    Args:
        pod: The pod.
        container: The container whose mounts are laid out.
        work: The pod's working folder.
        storage: What stands for a PersistentVolumeClaim, and for the volume named storage.
        config_maps: The run's ConfigMaps by name.

    Raises:
        PodStartError: a volume of a kind that has no counterpart here, or no such ConfigMap.
    """
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
    folders: dict[str, Path] = {}
    for mount in container.get("volumeMounts", ()):
        path = mount["mountPath"].rstrip("/") or "/"
        if path in MACHINE_MOUNTS:
            continue
        if path == TEMPORARY_MOUNT:
            folders[path] = temporary_folder(pod["metadata"]["uid"])
            folders[path].mkdir(mode=0o700, exist_ok=True)
            continue
        volume = volumes.get(mount["name"])
        if volume is None:
            raise PodStartError(CANNOT_RUN, f"no volume {mount['name']!r} for {path}")
        folder = _folder(volume, work / "volumes", storage, config_maps)
        folders[path] = folder / mount["subPath"] if "subPath" in mount else folder
        folders[path].mkdir(parents=True, exist_ok=True)
    return Layout(folders)


def _folder(
    volume: Mapping[str, Any], work: Path, storage: Path, config_maps: Mapping[str, Object]
) -> Path:
    name: str = volume["name"]
    if name == "storage" or "persistentVolumeClaim" in volume:
        return storage
    if "emptyDir" in volume:
        return work / name
    if "hostPath" in volume:
        return Path(str(volume["hostPath"]["path"]))
    if "configMap" in volume:
        return _write_config_map(volume["configMap"], work / name, config_maps)
    kinds = ", ".join(sorted(set(volume) - {"name"}))
    raise PodStartError(CANNOT_RUN, f"volume {name!r} ({kinds}) has no counterpart here")


def _write_config_map(
    source: Mapping[str, Any], folder: Path, config_maps: Mapping[str, Object]
) -> Path:
    found = config_maps.get(source["name"])
    if found is None:
        raise PodStartError(CANNOT_RUN, f'configmap "{source["name"]}" not found')
    paths = {item["key"]: item["path"] for item in source.get("items", ())}
    folder.mkdir(parents=True, exist_ok=True)
    for key, text in found.get("data", {}).items():
        if paths and key not in paths:
            continue
        file = folder / paths.get(key, key)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o444)
    return folder


def clear_temporary(pod_uid: str) -> None:
    """Remove the pod's /tmp: nothing of the pod runs any more."""
    shutil.rmtree(temporary_folder(pod_uid), ignore_errors=True)
