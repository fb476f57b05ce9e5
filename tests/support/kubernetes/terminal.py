"""A user's terminal: commands as a guide prints them, run by a shell, and remembered."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.support.kubernetes.api import Object
from tests.support.kubernetes.kubectl import Kubectl, run_command
from tests.support.kubernetes.programs import Program, ensure

_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Guide:
    """A page of the documentation, as somebody who follows it reads it."""

    def __init__(self, page: Path) -> None:
        self._blocks = _FENCE.findall(page.read_text(encoding="utf-8"))

    def commands(self) -> list[str]:
        """What is to be typed, in order."""
        text = "".join(body for language, _, body in self._blocks if language == "console")
        lines = text.replace("\\\n", "").splitlines()
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]

    def file(self, title: str) -> Object:
        """The YAML file that is shown under this name."""
        (found,) = self.objects(title)
        return found

    def objects(self, title: str) -> list[Object]:
        """The objects of the YAML file that is shown under this name."""
        (body,) = (body for _, name, body in self._blocks if name == title)
        return list(yaml.safe_load_all(body))


class Terminal:
    """A shell in a folder of its own, with one cluster's kubeconfig.

    Args:
        folder: Where commands run; gets a kubeconfig of its own.
        kubectl: Leads to the cluster.
    """

    def __init__(self, folder: Path, kubectl: Kubectl) -> None:
        self.folder = folder
        self.typed: list[str] = []
        self._outputs = 0
        config = folder / "kubeconfig"
        shutil.copy(kubectl.kubeconfig, config)
        programs = ensure(Program.KUBECTL, Program.HELM)
        found = [str(path.parent) for path in programs.values()]
        path = os.pathsep.join((*found, str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environment = {"KUBECONFIG": str(config), "HOME": str(folder), "PATH": path}

    def __call__(self, command: str, timeout_s: float = 120.0) -> str:
        """Type a command and give its output.

        Raises:
            CommandError: It failed.
        """
        self.typed.append(command)
        script = f"exec 2>&1; cd '{self.folder}'\n{command}"
        return run_command(
            *("bash", "-c", script), environment=self._environment, timeout_s=timeout_s
        )

    @contextmanager
    def beside(self, command: str, *, of_guide: bool = True) -> Iterator[Path]:
        """Type a command that goes on; gives the file that its output goes to.

        Args:
            command: What is typed.
            of_guide: Whether to remember it in `typed`.
        """
        if of_guide:
            self.typed.append(command)
        self._outputs += 1
        output = self.folder / f"output-{self._outputs}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env={**os.environ, **self._environment},
                stdout=file,
            )
        try:
            yield output
        finally:
            process.terminate()
            process.wait(30)
