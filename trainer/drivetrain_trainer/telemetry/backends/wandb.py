"""Weights & Biases: every value of every report, off the training path.

The client lives in a process of its own (`wandb_process`), which this backend's writer thread
asks one thing at a time. Where the service cannot be used, the run is recorded in the run
directory instead, to be sent later; nothing is lost by that.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import structlog

from drivetrain_api.training import WandbMode
from drivetrain_trainer.telemetry.backends.base import MAX_CLOSE_SECONDS, BackendCapabilities
from drivetrain_trainer.telemetry.backends.wandb_link import WandbError, WandbLink
from drivetrain_trainer.telemetry.backends.wandb_run import WandbRun

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_api.training import TrainingConfig
    from drivetrain_trainer.telemetry.backends.base import Backend, BackendContext
    from drivetrain_trainer.telemetry.record import Record

INIT_TIMEOUT_S: Final = 20.0
"""Seconds for the service to answer at the start; training does not wait for it."""
FINISH_TIMEOUT_S: Final = 15.0
"""Seconds for sending the rest at the end."""
FINISH_MARGIN_S: Final = 5.0
"""Seconds beyond those for the client itself."""
ANSWER_TIMEOUT_S: Final = 30.0
"""Seconds for a report, or beyond those at the start, before the client counts as hung."""

log = structlog.get_logger(__name__)


def make(context: BackendContext) -> Backend:
    """The backend of a run; nothing is started yet."""
    return WandbBackend(context)


class WandbBackend:
    """A run of Weights & Biases, the same one for every attempt of a run directory."""

    name = "wandb"
    capabilities = BackendCapabilities(tables=True, close_seconds=MAX_CLOSE_SECONDS)

    def __init__(self, context: BackendContext, *, init_timeout_s: float = INIT_TIMEOUT_S) -> None:
        self._context = context
        self._init_timeout_s = init_timeout_s
        self._link: WandbLink | None = None
        self._details: dict[str, str] = {}
        self._env_steps: int | None = None

    @property
    def details(self) -> Mapping[str, str]:
        """``run_id``; ``run_url`` once online; ``files``, to be sent by ``wandb sync``."""
        return self._details

    def open(self) -> None:
        """Start or go on with the run; offline where the service cannot be used.

        Raises:
            OSError: the run directory cannot be written.
            WandbError: the client does not even work offline.
        """
        config = self._context.spec.training
        if config.wandb_mode is WandbMode.DISABLED:
            return
        directory = self._context.directory
        run = WandbRun.of(directory, project=config.wandb_project, entity=config.wandb_entity)
        answer = self._start(run, config.wandb_mode)
        details = {"run_id": run.run_id, "files": answer["files"]}
        if answer["url"]:
            details["run_url"] = run.at(answer["url"], directory).url or ""
        self._details = details

    def write(self, record: Record) -> None:
        """One step of history with every value and table.

        Raises:
            WandbError: the client refused it, or is gone.
        """
        self._env_steps = record.env_steps
        self._ask(
            {
                "do": "log",
                "env_steps": record.env_steps,
                "wall_time": record.wall_time,
                "values": dict(record.values),
                "tables": {
                    name: {"columns": table.columns, "rows": table.rows}
                    for name, table in record.tables.items()
                },
            }
        )

    def upload(self, path: Path, name: str) -> None:
        """Show a video among the run's media.

        Raises:
            WandbError: the client refused it, or is gone.
        """
        self._ask({"do": "upload", "path": str(path), "name": name, "env_steps": self._env_steps})

    def flush(self) -> None:
        """Nothing: the client's service sends and stores by itself, every few seconds."""

    def close(self) -> None:
        """Send the rest and end the client's processes, within a bound.

        Raises:
            WandbError: not everything was sent; naming the files and how to send them.
        """
        if self._link is None:
            return
        request = {"do": "finish", "exit_code": int(_failed(self._context.directory))}
        try:
            self._link.ask(request, FINISH_TIMEOUT_S + FINISH_MARGIN_S)
        except WandbError as error:
            raise WandbError(error.kind, f"{error}; {self._how_to_send()}") from None
        finally:
            self._link.end()
            self._link = None

    def _start(self, run: WandbRun, mode: WandbMode) -> Mapping[str, Any]:
        try:
            return self._init(run, mode)
        except WandbError as error:
            if mode is WandbMode.OFFLINE:
                raise
            answer = self._init(run, WandbMode.OFFLINE)
            log.warning(
                "Weights & Biases cannot be reached; the run is recorded in its directory instead",
                reason=str(error),
                advice=_advice(error, self._context.spec.training),
                then=f"wandb sync {answer['files']}",
            )
            return answer

    def _init(self, run: WandbRun, mode: WandbMode) -> Mapping[str, Any]:
        config = self._context.spec.training
        self._link = WandbLink(self._context.directory)
        request = {
            "do": "open",
            "mode": mode.value,
            "directory": str(self._context.directory.absolute()),
            "config": dict(self._context.run_config),
            "project": run.project,
            "entity": run.entity,
            "group": config.wandb_group,
            "name": config.wandb_name or self._context.facts.run_name,
            "tags": list(config.wandb_tags),
            "notes": config.wandb_notes,
            "run_id": run.run_id,
            "resume": "allow",
            "trainer_pid": os.getpid(),
            "init_timeout_s": self._init_timeout_s,
            "finish_timeout_s": FINISH_TIMEOUT_S,
        }
        try:
            return self._link.ask(request, self._init_timeout_s + ANSWER_TIMEOUT_S)
        except WandbError:
            self._link.kill()
            self._link = None
            raise

    def _ask(self, request: Mapping[str, Any]) -> None:
        if self._link is not None:
            self._link.ask(request, ANSWER_TIMEOUT_S)

    def _how_to_send(self) -> str:
        return f"'wandb sync {self._details['files']}' sends what is missing"


def _advice(error: WandbError, config: TrainingConfig) -> str:
    """What to do about it; for a missing or refused key the two ways out."""
    if error.kind not in ("UsageError", "AuthenticationError"):
        return "the next attempt tries again"
    secret = config.wandb_api_key_secret_ref
    on_cluster = (
        f"check key {secret.key!r} of Secret {secret.name!r}"
        if secret is not None
        else "name a Secret in training.wandb_api_key_secret_ref"
    )
    return (
        f"give a valid key: WANDB_API_KEY or 'wandb login' on this machine, on a cluster "
        f"{on_cluster}; or set training.wandb_mode=offline"
    )


def _failed(directory: Path) -> bool:
    """Whether the run's summary says already that training failed."""
    try:
        summary = json.loads((directory / "run_summary.json").read_bytes())
        return bool(summary["status"] == "failed")
    except (OSError, ValueError, KeyError, TypeError):
        return False
