"""What may be chosen about local execution."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LAUNCHER: Final = "drivetrain-launcher"
"""Command of the trainer container."""
ENV_LAUNCHER: Final = "DRIVETRAIN_LAUNCHER"
"""Read by the command line. Value: a command line started for `LAUNCHER`, a wrapper mostly."""


@dataclass(frozen=True)
class LocalSettings:
    """How pods become processes."""

    launcher: tuple[str, ...] = (LAUNCHER,)
    """Words that take the place of `LAUNCHER` as a container's command."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """What a pod's environment starts from; a container's own variables go over it."""
    terminal: int | None = None
    """Descriptor that becomes the standard output of pod 0; its log file where None."""

    def search_path(self) -> str:
        """PATH of the pods: scripts of our own installation first, activated or not."""
        ours = str(Path(sys.executable).parent)
        return os.pathsep.join([ours, self.environment.get("PATH", os.defpath)])

    def find(self, command: str) -> str | None:
        """The file that a container's command names; None where there is none to execute."""
        return shutil.which(command, path=self.search_path())
