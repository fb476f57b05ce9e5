"""One run of Weights & Biases, opened in a process of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from drivetrain_trainer.telemetry.backends.wandb_link import WandbError, WandbLink
from drivetrain_trainer.telemetry.backends.wandb_run import WandbRun

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_trainer.telemetry.record import Record

ANSWER_TIMEOUT_S: Final = 30.0
"""Seconds for a report, or beyond the time to start, before the client counts as hung."""
FINISH_MARGIN_S: Final = 5.0
"""Seconds beyond the time to finish for the client itself."""
UPLOAD_TIMEOUT_S: Final = 300.0
"""Seconds for sending a video once training is over: a person waits for it."""


@dataclass(frozen=True)
class SessionSettings:
    """How a run is opened; what is None or empty stays as it is there."""

    online: bool
    """Else it is recorded in the run directory."""
    init_timeout_s: float
    """Seconds for the service to answer at the start."""
    finish_timeout_s: float
    """Seconds for sending the rest at the end."""
    name: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    """What the run was asked to do: plain JSON values, without secrets."""
    trains: bool = True
    """Training is this process: its load is recorded, and its end is the run's."""


class WandbSession:
    """An opened run; every wait is bounded."""

    def __init__(
        self, link: WandbLink, settings: SessionSettings, answer: Mapping[str, Any]
    ) -> None:
        self._link = link
        self._settings = settings
        self.url: str | None = answer["url"]
        """Page of the run; None offline."""
        self.files: str = answer["files"]
        """Folder with everything of this session, which ``wandb sync`` takes."""

    @classmethod
    def start(cls, directory: Path, run: WandbRun, settings: SessionSettings) -> Self:
        """Start the client and open the run, or go on with it.

        Raises:
            OSError: the run directory cannot be written.
            WandbError: refused, or no answer in time; nothing is left running.
        """
        link = WandbLink(directory)
        request = {
            "do": "open",
            "online": settings.online,
            "directory": str(directory.absolute()),
            "run_id": run.run_id,
            "project": run.project,
            "entity": run.entity,
            "name": settings.name,
            "group": settings.group,
            "tags": settings.tags,
            "notes": settings.notes,
            "config": dict(settings.config),
            "trains": settings.trains,
            "trainer_pid": os.getpid(),
            "init_timeout_s": settings.init_timeout_s,
            "finish_timeout_s": settings.finish_timeout_s,
        }
        try:
            answer = link.ask(request, settings.init_timeout_s + ANSWER_TIMEOUT_S)
        except BaseException:
            link.kill()
            raise
        return cls(link, settings, answer)

    def log(self, record: Record) -> None:
        """One step of history with every value and table.

        Raises:
            WandbError: the client refused it, or is gone.
        """
        tables = {
            name: {"columns": table.columns, "rows": table.rows}
            for name, table in record.tables.items()
        }
        request = {
            "do": "log",
            "env_steps": record.env_steps,
            "wall_time": record.wall_time,
            "values": dict(record.values),
            "tables": tables,
        }
        self._link.ask(request, ANSWER_TIMEOUT_S)

    def upload(self, path: Path, name: str, env_steps: int | None) -> None:
        """Show a video among the run's media.

        Raises:
            WandbError: the client refused it, or is gone.
        """
        request = {"do": "upload", "path": str(path), "name": name, "env_steps": env_steps}
        self._link.ask(request, ANSWER_TIMEOUT_S)

    def how_to_send(self) -> str:
        """The command for what is recorded and was not sent."""
        option = "--include-online " if self._settings.online else ""
        return f"'wandb sync {option}{self.files}' sends it"

    def finish(self, exit_code: int = 0) -> None:
        """Send the rest and end the client's processes.

        Raises:
            WandbError: not everything was sent; naming the files and how to send them.
        """
        timeout = self._settings.finish_timeout_s + FINISH_MARGIN_S
        try:
            self._link.ask({"do": "finish", "exit_code": exit_code}, timeout)
        except WandbError as error:
            raise WandbError(error.kind, f"{error}; {self.how_to_send()}") from None
        finally:
            self._link.end()


def send_video(directory: Path, video: Path, *, name: str, env_steps: int) -> str | None:
    """Add a video to the run of Weights & Biases that a run directory belongs to.

    Where that run has never been online the video is recorded beside the rest of it.

    Returns:
        Where it can be seen, or how to send it; None where there is no such run.

    Raises:
        OSError: the run directory cannot be written.
        WandbError: it was refused, or the service cannot be reached.
    """
    run = WandbRun.find(directory)
    if run is None:
        return None
    settings = SessionSettings(
        online=run.url is not None,
        init_timeout_s=ANSWER_TIMEOUT_S,
        finish_timeout_s=UPLOAD_TIMEOUT_S,
        trains=False,
    )
    session = WandbSession.start(directory, run, settings)
    try:
        session.upload(video, name, env_steps)
    finally:
        session.finish()
    return session.url or session.how_to_send()
