"""``wandb_run.json``: which run of Weights & Biases a run directory belongs to.

Written once and read by every later attempt, so that all of them go on in the same run.
"""

from __future__ import annotations

import json
import os
import secrets
import string
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import structlog

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "wandb_run.json"
SCHEMA_VERSION: Final = 1
ID_LETTERS: Final = string.ascii_lowercase + string.digits
ID_LENGTH: Final = 8
"""As the service's own ids: 36**8 of them, and they need be unique in a project alone."""
_LIMIT: Final = 65_536

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class WandbRun:
    """A run of Weights & Biases; holds no secret."""

    run_id: str
    """Id of the run, unique in its project."""
    project: str
    """Project that the run is in."""
    entity: str | None = None
    """User or team as the spec names it; None for the key's own."""
    url: str | None = None
    """Page of the run, known once it has been online."""

    @classmethod
    def of(cls, directory: Path, *, project: str, entity: str | None) -> Self:
        """The run of a run directory, made where there is none.

        A run cannot move: for another project or entity there is a new one.

        Raises:
            OSError: the file cannot be written.
        """
        found = cls.find(directory)
        if found is not None and (found.project, found.entity) == (project, entity):
            return found
        made = cls(_new_id(), project, entity)
        made.save(directory)
        return made

    @classmethod
    def find(cls, directory: Path) -> Self | None:
        """The run that an earlier attempt has made; None where there is none to read."""
        path = directory / FILE
        try:
            with path.open("rb") as file:
                return cls._parse(file.read(_LIMIT))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("run of Weights & Biases is not known", path=str(path), error=str(error))
            return None

    @classmethod
    def _parse(cls, data: bytes) -> Self:
        stored = json.loads(data)
        if stored.pop("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"its schema_version is not {SCHEMA_VERSION}")
        found = cls(**stored)
        if not found.run_id or not set(found.run_id) <= set(ID_LETTERS):
            raise ValueError(f"run_id {found.run_id!r} is none")
        return found

    def at(self, url: str, directory: Path) -> Self:
        """The same run with its page, stored."""
        if url == self.url:
            return self
        known = replace(self, url=url)
        known.save(directory)
        return known

    def save(self, directory: Path) -> None:
        """Write the file so that a reader finds the old content or the new, never a part."""
        path = directory / FILE
        temporary = path.with_name(f".{FILE}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        text = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, indent=2)
        try:
            with temporary.open("x", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def _new_id() -> str:
    return "".join(secrets.choice(ID_LETTERS) for _ in range(ID_LENGTH))
