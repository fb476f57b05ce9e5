"""CUDA MPS of a run that asks for it: seen in use by both processes of the rank, or refused.

CUDA runs without MPS where it cannot reach a daemon, and says nothing. So the daemon is asked for
its clients once learner and collector are both at work on the GPU.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_api.artifacts.mps_evidence import MpsEvidence
from drivetrain_api.errors import SpecError, Violation
from drivetrain_trainer.launcher.mps.control import Control, ControlPipe, MpsError, find_program
from drivetrain_trainer.launcher.mps.gpus import gpu_uuids
from drivetrain_trainer.launcher.mps.names import PIPE_DIRECTORY, PROGRAM
from drivetrain_trainer.launcher.mps.use import ask_clients
from drivetrain_trainer.runtime.faults import StopRequestedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_trainer.launcher.mps.use import Clients
    from drivetrain_trainer.runtime.devices import ResolvedDevices
    from drivetrain_trainer.runtime.doorbell import Interrupt

log = structlog.get_logger(__name__)

KEY: Final = "training.cuda_process_sharing"
CONFIRM_SECONDS: Final = 15.0
"""How long both processes may take until the daemon tells of them: a server may still begin."""
_PAUSE_SECONDS: Final = 0.25
_ADVICE: Final = "see docs/guide/mps.md, or leave the key out"


@dataclass(frozen=True)
class Processes:
    """Both processes of a rank, by their numbers here."""

    learner: int
    collector: int


class ProcessSharing:
    """The daemon that a rank was pointed at, and what is known of its use."""

    def __init__(self, control: Control, evidence: MpsEvidence) -> None:
        """Take unvalidated evidence; `open_sharing` makes it."""
        self.evidence = evidence
        """As the manifest takes it: validated only once both processes were seen."""
        self._control = control

    def confirm(
        self,
        processes: Processes,
        *,
        seconds: float = CONFIRM_SECONDS,
        interrupt: Interrupt | None = None,
    ) -> None:
        """Ask the daemon until both processes are clients of one of its servers.

        Call it once both have used the GPU.

        Raises:
            SpecError: they are not, within `seconds`; the evidence stays unvalidated.
            StopRequestedError: `interrupt` was set.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                clients = self._ask()
                problem = _problem(clients, processes)
            except MpsError as error:
                problem = str(error)
            if problem is None:
                break
            if interrupt is not None and interrupt.is_set():
                raise StopRequestedError
            if time.monotonic() >= deadline:
                raise _refuse(f"the daemon is there, but is not in use: {problem}")
            time.sleep(_PAUSE_SECONDS)
        found = {"validated": True, "server_pid": clients.servers[processes.learner]}
        self._validate({"effective": "mps", **found})
        log.info("CUDA MPS is in use", **self.evidence.model_dump(mode="json", exclude_none=True))

    def _ask(self) -> Clients:
        round_ = ask_clients()
        command = next(round_)
        while True:
            answer = self._control.ask(command)
            try:
                command = round_.send(answer)
            except StopIteration as end:
                clients: Clients = end.value
                return clients

    def _validate(self, found: Mapping[str, object]) -> None:
        content = self.evidence.model_dump(mode="json", exclude_none=True)
        try:
            self.evidence = MpsEvidence.model_validate({**content, **found})
        except ValueError as error:
            raise _refuse(f"the evidence does not hold: {error}") from error


def open_sharing(
    spec: TrainingRunSpec,
    devices: ResolvedDevices,
    *,
    rank: int = 0,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> ProcessSharing | None:
    """Check that there is a daemon to be used, before a process is started for it.

    Args:
        spec: The composed spec.
        devices: Of the rank.
        rank: Its global number.
        environ: Its environment, as its processes get it.
        root: Where ``proc`` and ``dev`` lie; another folder in tests alone.

    Returns:
        None where the run asks for no sharing: an ambient daemon is none of its evidence.

    Raises:
        SpecError: there is none, or it cannot be asked.
    """
    wanted = spec.training.cuda_process_sharing
    if wanted is None:
        return None
    directory, program = environ.get(PIPE_DIRECTORY), find_program(environ)
    if not directory:
        raise _refuse(
            f"{wanted} needs a daemon, and {PIPE_DIRECTORY} is not set: "
            "set accelerator.mps.mode InContainer, or start one and set its pipe directory"
        )
    if program is None:
        raise _refuse(f"whether MPS is in use is asked through {PROGRAM}, which is not on PATH")
    pipe = ControlPipe(Path(directory))
    collector = devices.backend or devices.collector_tensor
    try:
        kind = pipe.check_listening()
        gpus = gpu_uuids(environ, root)
    except MpsError as error:
        raise _refuse(str(error)) from error
    evidence = MpsEvidence(
        configured=wanted.value,
        rank=rank,
        world_size=spec.topology.world_size,
        learner_device=devices.learner,
        collector_device=collector,
        learner_gpu_uuid=_gpu(devices.learner, gpus),
        collector_gpu_uuid=_gpu(collector, gpus),
        pipe_directory_env=directory,
        pipe_directory=str(pipe.directory),
        control_pipe=str(pipe.path),
        control_pipe_kind=kind,
    )
    return ProcessSharing(Control(program, pipe.directory, environ), evidence)


def _problem(clients: Clients, processes: Processes) -> str | None:
    missing = [
        f"{name} process {pid}"
        for name, pid in (("learner", processes.learner), ("collector", processes.collector))
        if pid not in clients.servers
    ]
    if missing:
        return f"{' and '.join(missing)} no client of it ({clients.words})"
    if clients.servers[processes.learner] != clients.servers[processes.collector]:
        return f"learner and collector have servers of their own ({clients.words})"
    return None


def _gpu(device: str, gpus: tuple[str, ...]) -> str | None:
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return None
    index = int(number or 0)
    if index >= len(gpus):
        raise _refuse(f"{device} is none of the {len(gpus)} GPUs whose UUIDs are known")
    return gpus[index]


def _refuse(message: str) -> SpecError:
    return SpecError((Violation(KEY, f"{message}; {_ADVICE}"),))
