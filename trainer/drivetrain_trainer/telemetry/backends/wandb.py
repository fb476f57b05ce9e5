"""Weights & Biases: every value of every report, off the training path.

The client lives in a process of its own (`wandb_process`), which this backend's writer thread
asks one thing at a time. Where the service cannot be used, the run is recorded in the run
directory instead, to be sent later; nothing is lost by that.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_api.training import WandbMode
from drivetrain_trainer.telemetry.backends.base import MAX_CLOSE_SECONDS, BackendCapabilities
from drivetrain_trainer.telemetry.backends.wandb_link import WandbError
from drivetrain_trainer.telemetry.backends.wandb_run import WandbRun
from drivetrain_trainer.telemetry.backends.wandb_session import SessionSettings, WandbSession

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_api.training import TrainingConfig
    from drivetrain_trainer.telemetry.backends.base import Backend, BackendContext
    from drivetrain_trainer.telemetry.record import Record

INIT_TIMEOUT_S: Final = 20.0
"""Seconds for the service to answer at the start; training does not wait for it. The end of a
run that is shorter does, so this and what follows fit into `MAX_CLOSE_SECONDS`."""
FINISH_TIMEOUT_S: Final = 15.0
"""Seconds for sending the rest at the end."""
MODE_VARIABLE: Final = "WANDB_MODE"
_REFUSED_KEY: Final = re.compile(r"\berror 40[13]\b|HTTP 40[13]\b|API key", re.IGNORECASE)

log = structlog.get_logger(__name__)


def make(context: BackendContext) -> Backend:
    """The backend of a run; nothing is started yet."""
    return WandbBackend(context)


class WandbBackend:
    """A run of Weights & Biases, the same one for every attempt of a run directory."""

    name = "wandb"
    capabilities = BackendCapabilities(tables=True, close_seconds=MAX_CLOSE_SECONDS)

    def __init__(
        self,
        context: BackendContext,
        *,
        init_timeout_s: float = INIT_TIMEOUT_S,
        finish_timeout_s: float = FINISH_TIMEOUT_S,
    ) -> None:
        config = context.spec.training
        self._directory = context.directory
        self._training = config
        self._settings = SessionSettings(
            online=config.wandb_mode is WandbMode.ONLINE,
            init_timeout_s=init_timeout_s,
            finish_timeout_s=finish_timeout_s,
            name=config.wandb_name or context.facts.run_name,
            group=config.wandb_group,
            tags=tuple(config.wandb_tags),
            notes=config.wandb_notes,
            config=context.run_config,
        )
        self._session: WandbSession | None = None
        self._env_steps: int | None = None
        self._details: Mapping[str, str] = MappingProxyType({})

    @property
    def details(self) -> Mapping[str, str]:
        """``run_id`` and ``files``; ``run_url`` online; what it is instead of online, and why.

        That is ``offline_because`` or ``disabled_because``.
        """
        return self._details

    def open(self) -> None:
        """Start or go on with the run; offline where the service cannot be used.

        Raises:
            OSError: the run directory cannot be written.
            WandbError: the client does not even work offline.
        """
        training, directory = self._training, self._directory
        mode, because = quietest(training.wandb_mode, os.environ)
        details = {f"{mode}_because": because} if because else {}
        if mode is not WandbMode.DISABLED:
            run = WandbRun.of(
                directory, project=training.wandb_project, entity=training.wandb_entity
            )
            details |= self._start(run, online=mode is WandbMode.ONLINE)
        self._details = MappingProxyType(details)

    def write(self, record: Record) -> None:
        """One step of history with every value and table.

        Raises:
            WandbError: the client refused it, or is gone.
        """
        self._env_steps = record.env_steps
        if self._session is not None:
            self._session.log(record)

    def upload(self, path: Path, name: str) -> None:
        """Show a video among the run's media.

        Raises:
            WandbError: the client refused it, or is gone.
        """
        if self._session is not None:
            self._session.upload(path, name, self._env_steps)

    def flush(self) -> None:
        """Nothing: the client's service sends and stores by itself, every few seconds."""

    def close(self) -> None:
        """Send the rest and end the client's processes, within a bound.

        Raises:
            WandbError: not everything was sent; naming the files and how to send them.
        """
        if self._session is not None:
            session, self._session = self._session, None
            session.finish(exit_code=int(_failed(self._directory)))

    def _start(self, run: WandbRun, *, online: bool) -> dict[str, str]:
        """Start the session; its details."""
        details = {"run_id": run.run_id}
        try:
            session = self._session_of(run, online=online)
        except WandbError as error:
            if not online:
                raise
            details["offline_because"] = str(error)
            session = self._offline_instead(run, error)
        details["files"] = session.files
        if session.url is not None:
            details["run_url"] = session.url
            run.at(session.url, self._directory)
            log.info("page of the run in Weights & Biases", url=session.url)
        self._session = session
        return details

    def _session_of(self, run: WandbRun, *, online: bool) -> WandbSession:
        return WandbSession.start(self._directory, run, replace(self._settings, online=online))

    def _offline_instead(self, run: WandbRun, error: WandbError) -> WandbSession:
        session = self._session_of(run, online=False)
        log.warning(
            "Weights & Biases cannot be used; the run is recorded in its directory instead",
            reason=str(error),
            advice=_advice(error, self._training),
            later=session.how_to_send(),
        )
        return session


def quietest(wanted: WandbMode, environment: Mapping[str, str]) -> tuple[WandbMode, str | None]:
    """The mode, which ``WANDB_MODE`` may only make quieter, and why it is not the wanted one."""
    value = environment.get(MODE_VARIABLE, "").lower()
    loudness = (WandbMode.DISABLED, WandbMode.OFFLINE, WandbMode.ONLINE)
    asked = {"disabled": WandbMode.DISABLED, "offline": WandbMode.OFFLINE}.get(value)
    if asked is None or loudness.index(asked) >= loudness.index(wanted):
        return wanted, None
    return asked, f"{MODE_VARIABLE}={value} in the environment"


def _advice(error: WandbError, training: TrainingConfig) -> str:
    """What to do about it; for a missing or refused key the two ways out."""
    if not _REFUSED_KEY.search(str(error)):
        return "the next attempt of the run tries again"
    secret = training.wandb_api_key_secret_ref
    on_cluster = (
        f"check key {secret.key!r} of Secret {secret.name!r}"
        if secret is not None
        else "name its Secret in training.wandb_api_key_secret_ref"
    )
    return (
        "either give a valid key (here: WANDB_API_KEY or 'wandb login'; on a cluster: "
        f"{on_cluster}), or set training.wandb_mode=offline"
    )


def _failed(directory: Path) -> bool:
    """Whether the run's summary says already that training failed."""
    try:
        summary = json.loads((directory / "run_summary.json").read_bytes())
        return bool(summary["status"] == "failed")
    except (OSError, ValueError, KeyError, TypeError):
        return False
