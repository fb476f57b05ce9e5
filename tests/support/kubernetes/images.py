"""The project's images, built here by buildah from their real Dockerfiles.

``python -m tests.support.kubernetes.images operator trainer`` builds ahead and prints the
names. A name holds a hash of everything that goes in: nothing is built twice, and torch's
layer is built anew only when its version changes. All is kept below the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.kubernetes.host_packages import IMAGES, ensure_packages
from tests.support.kubernetes.image_parts import (
    OWN_MOUNTS,
    Image,
    ImageBuildError,
    ImageReader,
    cache_folder,
    locked,
)

ROOT = Path(__file__).parents[3]
INPUTS = (
    "pyproject.toml",
    "constraints.txt",
    "README.md",
    "LICENSE",
    "crds",
    "operator",
    "trainer",
)
"""What `.dockerignore` lets through."""
REPOSITORY: Final = "local.test"
PAUSE: Final = f"{REPOSITORY}/pause:1"
"""Image of a pod's own container."""
BASE_VARIABLE: Final = "DRIVETRAIN_BASE_IMAGE"
"""Names a base image to pull, where a registry can be reached."""
VARIANT_VARIABLE: Final = "DRIVETRAIN_TRAINER_VARIANT"
"""``cpu`` or ``cuda``: which torch the trainer's image gets; cuda needs the default index alone."""

_SUITE = "bookworm"
_BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
_CERTIFICATE_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
_PIP_VARIABLES = {"PIP_INDEX_URL": "index-url", "PIP_EXTRA_INDEX_URL": "extra-index-url"}
_HASH_LENGTH = 12


@dataclass(frozen=True)
class Recipe:
    """How an image of the project is built."""

    name: str
    dockerfile: Path
    arguments: Mapping[str, str] = field(default_factory=dict)

    def digest(self, base: Image) -> str:
        """Hash of all that goes in."""
        content = hashlib.sha256(f"{base.name}\0{sorted(self.arguments.items())}".encode())
        for path in (self.dockerfile, *input_files(ROOT)):
            content.update(f"\0{path.relative_to(ROOT)}\0{path.stat().st_mode:o}\0".encode())
            content.update(path.read_bytes())
        return content.hexdigest()[:_HASH_LENGTH]


def input_files(root: Path) -> Iterator[Path]:
    """Every file that the builds see, in order."""
    for name in INPUTS:
        top = root / name
        found = [top] if top.is_file() else sorted(path for path in top.rglob("*"))
        for path in found:
            skipped = "__pycache__" in path.parts or path.name == "Dockerfile"
            if path.is_file() and not skipped and ".egg-info" not in str(path):
                yield path


def operator_recipe() -> Recipe:
    """The operator's image."""
    return Recipe("drivetrain-operator", ROOT / "operator" / "Dockerfile")


def trainer_recipe() -> Recipe:
    """The trainer's image."""
    variant = os.environ.get(VARIANT_VARIABLE, "cuda")
    return Recipe("drivetrain-trainer", ROOT / "trainer" / "Dockerfile", {"VARIANT": variant})


class Builder:
    """buildah with a store of its own."""

    def __init__(self, folder: Path | None = None) -> None:
        ensure_packages(IMAGES)
        self.folder = folder or cache_folder("images")
        self.reader = ImageReader(self.folder)
        """Of what it built."""

    def run(self, *words: str | Path, log: Path | None = None) -> str:
        """Run buildah; its output.

        Raises:
            ImageBuildError: It failed.
        """
        store = ("--root", self.folder / "storage", "--runroot", self.folder / "run")
        command = ["buildah", *map(str, store), "--storage-driver", "overlay", *map(str, words)]
        done = subprocess.run(
            [*OWN_MOUNTS, str(self.folder / "run"), *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if log is not None:
            log.write_text(done.stdout + done.stderr)
        if done.returncode:
            lines = (done.stdout + done.stderr).splitlines()[-20:]
            raise ImageBuildError(f"{' '.join(command)}:\n" + "\n".join(lines))
        return done.stdout.strip()

    def has(self, image: Image) -> bool:
        """Whether the store holds it."""
        return bool(self.run("images", "--quiet", "--filter", f"reference={image.name}"))

    def build(self, recipe: Recipe) -> Image:
        """The image of a recipe, built where it is not there; older ones of it are removed."""
        with locked(self.folder / "build.lock"):
            base = self._base()
            image = Image(f"{REPOSITORY}/{recipe.name}:{recipe.digest(base)}")
            if not self.has(image):
                self._build(recipe, base, image)
                self._remove_old(image)
        return image

    def pause(self) -> Image:
        """Image of a pod's own container: the base, asleep."""
        image = Image(PAUSE)
        with locked(self.folder / "build.lock"):
            if not self.has(image):
                self._commit(self._base().name, image, "--entrypoint", '["/bin/sleep", "infinity"]')
        return image

    def program(self, name: str, binary: Path) -> Image:
        """An image that runs one static program, such as another project's controller."""
        content = hashlib.sha256(binary.read_bytes()).hexdigest()[:_HASH_LENGTH]
        image = Image(f"{REPOSITORY}/{name}:{content}")
        entrypoint = f'["/{binary.name}"]'
        with locked(self.folder / "build.lock"):
            if not self.has(image):
                self._commit(
                    *("scratch", image, "--entrypoint", entrypoint), add=(binary, f"/{binary.name}")
                )
        return image

    def _build(self, recipe: Recipe, base: Image, image: Image) -> None:
        self.run("rm", "--all")  # of builds that were killed
        arguments = {"BASE": base.name, **recipe.arguments}
        self.run(
            *("bud", "--isolation", "chroot", "--layers"),
            *(word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))),
            *self._host_settings(),
            *("--file", recipe.dockerfile, "--tag", image.name, "."),
            log=self.folder / f"{recipe.name}.log",
        )

    def _host_settings(self) -> list[str]:
        """Where this machine needs certificates or an index of its own, pip gets to know.

        By a mount, so that nothing of it is in the image.
        """
        lines = ["[global]"]
        mounts: list[str] = []
        bundle = next((os.environ[v] for v in _CERTIFICATE_VARIABLES if os.environ.get(v)), None)
        if bundle is not None:
            lines.append(f"cert = {bundle}")
            mounts.append(f"{Path(bundle).parent}:{Path(bundle).parent}:ro")
        for variable, key in _PIP_VARIABLES.items():
            if os.environ.get(variable):
                lines.append(f"{key} = {os.environ[variable]}")
        settings = self.folder / "pip.conf"
        settings.write_text("\n".join(lines) + "\n")
        mounts.append(f"{settings}:/etc/pip.conf:ro")
        return [word for mount in mounts for word in ("--volume", mount)]

    def _base(self) -> Image:
        """What Dockerfiles start from: a Debian with Python, or the image that is named."""
        given = os.environ.get(BASE_VARIABLE)
        if given:
            return Image(given)
        content = hashlib.sha256(f"{_SUITE} {_BASE_PACKAGES}".encode()).hexdigest()
        image = Image(f"{REPOSITORY}/base:{content[:_HASH_LENGTH]}")
        if not self.has(image):
            archive = self.folder / "base.tar"
            packages = ",".join(_BASE_PACKAGES)
            done = subprocess.run(
                ["mmdebstrap", "--variant=minbase", f"--include={packages}", _SUITE, archive],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise ImageBuildError(f"mmdebstrap: {done.stderr.strip()[-1000:]}")
            self._commit("scratch", image, add=(archive, "/"))
            archive.unlink()
        return image

    def _commit(
        self, source: str, image: Image, *config: str, add: tuple[Path, str] | None = None
    ) -> None:
        """Make an image without a Dockerfile."""
        container = self.run("from", source)
        try:
            if add is not None:
                self.run("add", "--quiet", container, *map(str, add))
            if config:
                self.run("config", *config, container)
            self.run("commit", "--quiet", container, image.name)
        finally:
            self.run("rm", container)

    def _remove_old(self, image: Image, keep: int = 3) -> None:
        """Remove all but the newest images of a repository, and layers that none needs."""
        listed = self.run(
            *("images", "--format", "{{.CreatedAtRaw}} {{.Name}}:{{.Tag}}"),
            *("--filter", f"reference={image.repository}"),
        )
        names = [line.rpartition(" ")[2] for line in sorted(listed.splitlines(), reverse=True)]
        for name in names[keep:]:
            self.run("rmi", name)


RECIPES = {"operator": operator_recipe, "trainer": trainer_recipe}


def main(names: Sequence[str]) -> None:
    """Build what is named, both where nothing is."""
    unknown = sorted(set(names) - RECIPES.keys())
    if unknown:
        sys.exit(f"unknown image {', '.join(unknown)}; known: {', '.join(RECIPES)}")
    builder = Builder()
    for name in names or RECIPES:
        print(builder.build(RECIPES[name]()).name)


if __name__ == "__main__":
    main(sys.argv[1:])
