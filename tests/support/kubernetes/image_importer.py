"""A containerd that does nothing but bring images into a folder."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

from tests.support.kubernetes.api import wait_for
from tests.support.kubernetes.processes import Process

_CONFIGURATION = """version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
"""


class ImageImportError(RuntimeError):
    """containerd refused an archive; the message has its words."""


class Importer:
    """A running containerd over `root`; it ends with this process, whatever way that ends."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._socket = f"/run/drivetrain-images-{folder.stat().st_ino}.sock"
        configuration = folder / "containerd.toml"
        configuration.write_text(
            _CONFIGURATION.format(root=root, state=folder / "state", socket=self._socket)
        )
        unshare, containerd = shutil.which("unshare"), shutil.which("containerd")
        assert unshare is not None
        assert containerd is not None
        # Its mounts are its own, so that none stays behind.
        own_mounts = [unshare, "--mount", "--propagation", "private"]
        self._process = Process(
            "containerd",
            [*own_mounts, containerd, "--config", configuration],
            folder / "containerd.log",
        )

    def __enter__(self) -> Self:
        Path(self._socket).unlink(missing_ok=True)
        self._process.start()
        wait_for(self._answers, "answer of containerd")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop(signal.SIGTERM)
        Path(self._socket).unlink(missing_ok=True)
        Path(f"{self._socket}.ttrpc").unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove an image and what it alone needs."""
        subprocess.run(
            self._ctr("images", "remove", "--sync", name), check=True, capture_output=True
        )

    @contextmanager
    def archive(self) -> Iterator[IO[bytes]]:
        """A file to write an OCI archive to; it is imported and unpacked as it comes.

        Raises:
            ImageImportError: containerd refused it.
        """
        command = self._ctr("images", "import", "-")
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                yield process.stdin
                process.stdin.close()
                told = process.stdout.read()
            except BrokenPipeError:
                told = process.stdout.read()
                process.kill()
        if process.returncode:
            raise ImageImportError(told.decode(errors="replace").strip())

    def _answers(self) -> bool:
        self._process.check()
        command = self._ctr("version")
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _ctr(self, *words: str) -> list[str]:
        return ["ctr", "--address", self._socket, "--namespace", "k8s.io", *words]
