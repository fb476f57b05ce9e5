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
from tests.support.kubernetes.images import Builder, Image, cache_folder, locked

_KEPT = 3
"""Images of one repository that are kept."""
_REFERENCE: Final = "org.opencontainers.image.ref.name"


class ImageStore:
    """The shared containerd folder, beside the layers as files."""

    def __init__(self, folder: Path, builder: Builder) -> None:
        self._folder = folder
        self._builder = builder
        self._root = folder / "containerd"
        self._layout = folder / "layout"
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
            for name in sorted(self._root.rglob("*.db")):
                copy = destination / name.relative_to(self._root)
                copy.unlink()
                shutil.copy2(name, copy)

    def archive(self, image: Image, folder: Path) -> Path:
        """A file to import `image` from into any containerd; whole, so large for a trainer."""
        path = folder / f"{image.tag}.tar"
        with locked(self._lock):
            manifest = self._export(image)
            with path.open("wb") as file:
                self._write_archive(file, image, manifest, set())
        return path

    # -- the shared folder -----------------------------------------------------------------

    def _names(self) -> list[str]:
        """Images that the folder has; recorded last, once they are whole."""
        record = self._folder / "images.json"
        names: list[str] = json.loads(record.read_text()) if record.exists() else []
        return names

    def _add(self, images: Sequence[Image]) -> None:
        names = [name for name in self._names() if name not in {image.name for image in images}]
        names += [image.name for image in images]
        kept = [
            name
            for name in names
            if name in [n for n in names if Image(n).repository == Image(name).repository][-_KEPT:]
        ]
        with Importer(self._root, self._folder) as importer:
            for image in images:
                self._import(importer, image)
            for name in sorted(set(names) - set(kept)):
                importer.remove(name)
        self._forget_layers(kept)
        (self._folder / "images.json").write_text(json.dumps(kept))

    def _import(self, importer: Importer, image: Image) -> None:
        """Import an image; layers that are there already are not sent."""
        manifest = self._export(image)
        blobs = self._root / "io.containerd.content.v1.content" / "blobs" / "sha256"
        present = {path.name for path in blobs.iterdir()} if blobs.is_dir() else set()
        with importer.archive() as file:
            self._write_archive(file, image, manifest, present)
        for name in _blobs_of(self._layout, manifest):  # the same bytes: keep them once
            if (blobs / name).exists():
                ours = self._layout / "blobs" / "sha256" / name
                ours.unlink()
                ours.hardlink_to(blobs / name)

    def _export(self, image: Image) -> str:
        """Write an image into the layout; the digest of its manifest."""
        target = f"oci:{self._layout}:{image.tag}"
        self._builder.run("push", "--quiet", "--disable-compression", image.name, target)
        index = json.loads((self._layout / "index.json").read_text())
        for entry in index["manifests"]:
            if entry.get("annotations", {}).get(_REFERENCE) == image.tag:
                return str(entry["digest"].removeprefix("sha256:"))
        raise LookupError(f"{image.name} is not in the layout it was written to")

    def _write_archive(
        self, file: IO[bytes], image: Image, manifest: str, present: set[str]
    ) -> None:
        blobs = self._layout / "blobs" / "sha256"
        with tarfile.open(fileobj=file, mode="w|") as archive:
            _add_bytes(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
            _add_bytes(archive, "index.json", _index(image, blobs / manifest))
            for name in (manifest, *_blobs_of(self._layout, manifest)):
                if name not in present:
                    archive.add(blobs / name, f"blobs/sha256/{name}")

    def _forget_layers(self, names: Sequence[str]) -> None:
        """Remove what no kept image needs from the layout."""
        path = self._layout / "index.json"
        index = json.loads(path.read_text())
        tags = {Image(name).tag for name in names}
        index["manifests"] = [
            entry
            for entry in index["manifests"]
            if entry.get("annotations", {}).get(_REFERENCE) in tags
        ]
        needed: set[str] = set()
        for entry in index["manifests"]:
            manifest = entry["digest"].removeprefix("sha256:")
            needed |= {manifest, *_blobs_of(self._layout, manifest)}
        path.write_text(json.dumps(index))
        for blob in (self._layout / "blobs" / "sha256").iterdir():
            if blob.name not in needed:
                blob.unlink()


def _blobs_of(layout: Path, manifest: str) -> list[str]:
    """Digests of an image's configuration and layers."""
    document = json.loads((layout / "blobs" / "sha256" / manifest).read_text())
    entries = (document["config"], *document["layers"])
    return [entry["digest"].removeprefix("sha256:") for entry in entries]


def _index(image: Image, manifest: Path) -> bytes:
    """An index of one image, named as a pod names it."""
    entry: dict[str, Any] = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": f"sha256:{manifest.name}",
        "size": manifest.stat().st_size,
        "annotations": {"io.containerd.image.name": image.name, _REFERENCE: image.tag},
    }
    return json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))
