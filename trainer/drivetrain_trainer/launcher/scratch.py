"""The pod-private folder in which ranks, torchrun and launcher leave word for one another."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.labels import ENV_SCRATCH

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Scratch:
    """Names of the files in ``DRIVETRAIN_SCRATCH``."""

    folder: Path

    def outcome(self, rank: int) -> Path:
        """What a rank says of its end (`RankOutcome`)."""
        return self.folder / f"outcome-rank{rank}.json"

    def started(self, rank: int) -> Path:
        """There once a rank handles signals itself; holds its MPS pipe directory, if any."""
        return self.folder / f"started-rank{rank}"

    def life(self, rank: int) -> Path:
        """Where a rank is in its life (`LifeMark`)."""
        return self.folder / f"life-rank{rank}"

    def mps_evidence(self, rank: int) -> Path:
        """How a rank shares its GPU (`MpsEvidence`)."""
        return self.folder / f"mps-rank{rank}.json"

    @property
    def mps(self) -> Path:
        """Folders of the MPS daemons."""
        return self.folder / "mps"

    @property
    def progress(self) -> Path:
        """Rank 0's figures (`Digest`)."""
        return self.folder / "progress.json"

    @property
    def torchrun(self) -> Path:
        """How torchrun ended (`TorchrunReport`)."""
        return self.folder / "torchrun.json"

    def prepare(self, ranks: range) -> None:
        """Make the folder, and remove what an earlier process left there.

        Raises:
            SpecError: it cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            stale = [self.progress, self.torchrun]
            for rank in ranks:
                stale += [self.outcome(rank), self.started(rank), self.life(rank)]
                stale.append(self.mps_evidence(rank))
            for path in stale:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                    continue
                path.unlink(missing_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            message = f"{self.folder} cannot be written: {error.strerror}"
            raise SpecError((Violation(ENV_SCRATCH, message),)) from error
