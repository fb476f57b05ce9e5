"""Images as containerd keeps them, unpacked once and shared by all nodes.

One containerd folder in the user's cache holds every image. A node gets a copy of it made of
hard links: layers are never changed once they are there, and what a container writes goes
elsewhere. So a node with a trainer of 5 GB starts in seconds and takes no disk, and of a
changed project only the small layers on top are brought in.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final, Self

from tests.support.kubernetes.image_importer import Importer
from tests.support.kubernetes.image_parts import Blob, Image, cache_folder, locked
from tests.support.kubernetes.images import Builder

_KEPT = 3
"""Images of one repository that are kept."""
_REFERENCE: Final = "org.opencontainers.image.ref.name"


class ImageStore:
    """The shared containerd folder, filled from a builder's images."""

    def __init__(self, folder: Path, builder: Builder) -> None:
        self._folder = folder
        self._builder = builder
        self._root = folder / "containerd"
        self._lock = folder / "lock"

    @classmethod
    def shared(cls) -> Self:
        """The user's."""
        return cls(cache_folder("image-store"), Builder())

    def clone(self, images: Sequence[Image], destination: Path) -> None:
        """Make `destination` a containerd folder that has `images` and those of the store."""
        wanted = [self._builder.pause(), *images]
        with locked(self._lock):
            missing = [image for image in wanted if image.name not in self._names()]
            if missing:
                self._add(missing)
        with locked(self._lock, shared=True):
            subprocess.run(["cp", "--archive", "--link", self._root, destination], check=True)
            for database in self._root.rglob("*.db"):  # the only files that are ever rewritten
                copy = destination / database.relative_to(self._root)
                copy.unlink()
                shutil.copy2(database, copy)

    def archive(self, image: Image, folder: Path) -> Path:
        """A file to import `image` from into any containerd; whole, so large for a trainer."""
        path = folder / f"{image.tag}.tar"
        with path.open("wb") as file:
            self._write_archive(file, image, set())
        return path

    def _names(self) -> list[str]:
        """Images that the folder has; recorded last, once they are whole."""
        record = self._folder / "images.json"
        names: list[str] = json.loads(record.read_text()) if record.exists() else []
        return names

    def _add(self, images: Sequence[Image]) -> None:
        names = [name for name in self._names() if name not in {image.name for image in images}]
        names += [image.name for image in images]
        kept = [name for name in names if name in _newest(names, Image(name).repository)]
        with Importer(self._root, self._folder) as importer:
            for image in images:
                blobs = self._root / "io.containerd.content.v1.content" / "blobs" / "sha256"
                present = {path.name for path in blobs.iterdir()} if blobs.is_dir() else set()
                with importer.archive() as file:
                    self._write_archive(file, image, present)
            for name in sorted(set(names) - set(kept)):
                importer.remove(name)
        (self._folder / "images.json").write_text(json.dumps(kept))

    def _write_archive(self, file: IO[bytes], image: Image, present: set[str]) -> None:
        """Write an OCI archive without the blobs that are there already."""
        manifest, *others = self._builder.reader.blobs(image)
        with tarfile.open(fileobj=file, mode="w|") as archive:
            _add(archive, "oci-layout", io.BytesIO(b'{"imageLayoutVersion":"1.0.0"}'))
            _add(archive, "index.json", io.BytesIO(_index(image, manifest)))
            for blob in (manifest, *others):
                if blob.digest not in present:
                    with self._builder.reader.open(blob) as content:
                        _add(archive, f"blobs/sha256/{blob.digest}", content, blob.size)


def _newest(names: Sequence[str], repository: str) -> list[str]:
    return [name for name in names if Image(name).repository == repository][-_KEPT:]


def _index(image: Image, manifest: Blob) -> bytes:
    """An index of one image, named as a pod names it."""
    entry: dict[str, Any] = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": f"sha256:{manifest.digest}",
        "size": manifest.size,
        "annotations": {"io.containerd.image.name": image.name, _REFERENCE: image.tag},
    }
    return json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes], size: int | None = None) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content.getvalue()) if isinstance(content, io.BytesIO) else size or 0
    archive.addfile(info, content)
