"""Images in buildah's store: their names, and their parts as bytes."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

OWN_MOUNTS = (
    *("unshare", "--mount", "--propagation", "private", "bash", "-c"),
    'mkdir -p "$0" && mount -t tmpfs tmpfs "$0" && exec "$@"',
)
"""buildah leaves mounts behind, and notes on them: in a namespace of its own both go."""


class ImageBuildError(RuntimeError):
    """A build failed; the message has the end of what it wrote."""


@dataclass(frozen=True)
class Image:
    """An image of the local store."""

    name: str
    """With its tag, as a pod names it."""

    @property
    def repository(self) -> str:
        """Name without the tag."""
        return self.name.rpartition(":")[0]

    @property
    def tag(self) -> str:
        """What follows the name."""
        return self.name.rpartition(":")[2]


@dataclass(frozen=True)
class Blob:
    """A part of an image: its manifest, its configuration or a layer."""

    digest: str
    """Hexadecimal SHA-256 of its bytes."""
    size: int
    content: bytes | None = None
    """None for a layer."""
    layer: str = ""
    """The layer's identity in the store."""


def cache_folder(name: str) -> Path:
    """A folder of the user's cache; on one disk, so that files can be linked between them."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "drivetrain" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock file, against other processes."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


class ImageReader:
    """Reads images of the store in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def blobs(self, image: Image) -> list[Blob]:
        """All parts of an image, the manifest first; layers uncompressed, from the base up."""
        manifest = self._inspect("get-image-data", image.name, "manifest")
        document = json.loads(manifest)
        digest = document["config"]["digest"]
        config = self._inspect("get-image-data", image.name, digest)
        (facts,) = json.loads(self._inspect("image", "--json", image.name))
        parents: list[str] = []
        layer = facts["layer"]
        while layer:
            parents.append(layer)
            (found,) = json.loads(self._inspect("layer", "--json", layer))
            layer = found.get("parent")
        layers = zip(document["layers"], reversed(parents), strict=True)
        return [
            *(
                Blob(hashlib.sha256(text).hexdigest(), len(text), text)
                for text in (manifest, config)
            ),
            *(
                Blob(entry["digest"].removeprefix("sha256:"), entry["size"], layer=name)
                for entry, name in layers
            ),
        ]

    @contextmanager
    def open(self, blob: Blob) -> Iterator[IO[bytes]]:
        """Read a part of an image; a layer as a tar."""
        if blob.content is not None:
            yield io.BytesIO(blob.content)
            return
        command = self._store_command("diff", "--uncompressed", blob.layer)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield process.stdout
        if process.returncode:
            raise ImageBuildError(f"layer {blob.layer} cannot be read")

    def _inspect(self, *words: str) -> bytes:
        command = self._store_command(*words)
        return subprocess.run(command, capture_output=True, check=True).stdout

    def _store_command(self, command: str, *words: str) -> list[str]:
        places = ("--graph", str(self._folder / "storage"), "--run", str(self._folder / "run"))
        storage = ["containers-storage", command, *places, "--storage-driver", "overlay", *words]
        return [*OWN_MOUNTS, str(self._folder / "run"), *storage]
