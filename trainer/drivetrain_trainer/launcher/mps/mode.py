"""The three modes of `spec.accelerator.mps`, as the launcher runs them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from drivetrain_api.artifacts.mps_evidence import MpsEvidence
from drivetrain_api.atomic import write_text_atomically
from drivetrain_api.digest import MpsReport
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.labels import ENV_MPS_PIPES
from drivetrain_api.trainingrun import MpsMode
from drivetrain_trainer.launcher.mps.control import MpsError
from drivetrain_trainer.launcher.mps.daemon import Daemon, stop_daemons
from drivetrain_trainer.launcher.mps.names import MEMORY_LIMIT, THREAD_PERCENTAGE
from drivetrain_trainer.launcher.outcome import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.mps import MemoryLimits
    from drivetrain_api.training import CudaProcessSharing
    from drivetrain_trainer.launcher.mps.control import ControlPipe
    from drivetrain_trainer.launcher.mps.use import UseCheck
    from drivetrain_trainer.launcher.scratch import Scratch

log = structlog.get_logger(__name__)

USE_SECONDS: Final = 300.0
"""How long ranks may take from their start until they are clients: they load and compile."""
FIGURES_SECONDS: Final = 30.0
"""The same from the first progress on: by then the GPU is at work."""
EXTERNAL_SECONDS: Final = 60.0
"""How often an injected daemon is looked at; each look is a line in its log."""

_ERROR = "MpsError"
_MESSAGE_LIMIT = 1024


class Mps(Protocol):
    """One mode at work; a `Companion` of the ranks."""

    @property
    def report(self) -> MpsReport | None:
        """What is known; None where MPS was not asked for."""

    def environment(self) -> dict[str, str]:
        """What torchrun and its ranks are given."""

    def poll(self, codes: Mapping[int, int]) -> Verdict | None:
        """Look after it; the verdict where the attempt cannot go on."""

    def stop(self) -> None:
        """End what was started; may be called again."""


class DisabledMps:
    """Nothing is started, nothing is said."""

    report: MpsReport | None = None

    def environment(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def poll(self, codes: Mapping[int, int]) -> Verdict | None:
        """Nothing can fail."""
        del codes
        return None

    def stop(self) -> None:
        """Nothing was started."""


@dataclass
class ExternalMps:
    """An injected daemon: used, watched, never started or stopped by us."""

    pipe: ControlPipe
    percentage: int | None
    limits: MemoryLimits
    gpus: int
    note: str
    """What more is known of the daemon."""
    _next_look: float = field(default_factory=lambda: time.monotonic() + EXTERNAL_SECONDS)
    _failed: str | None = None

    @property
    def report(self) -> MpsReport | None:
        """Ready as long as it answers."""
        message = self._failed or f"the injected daemon at {self.pipe.path} answers; {self.note}"
        return _report(
            MpsMode.EXTERNAL, 0 if self._failed else 1, message, ready=self._failed is None
        )

    def environment(self) -> dict[str, str]:
        """The limits; the pipe directory is there already."""
        memory = self.limits.as_environment(self.gpus)
        return {
            **({THREAD_PERCENTAGE: str(self.percentage)} if self.percentage is not None else {}),
            **({MEMORY_LIMIT: memory} if memory else {}),
        }

    def poll(self, codes: Mapping[int, int]) -> Verdict | None:
        """That it still answers."""
        del codes
        if time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + EXTERNAL_SECONDS
        try:
            self.pipe.check_listening()
        except MpsError as error:
            self._failed = f"the injected MPS daemon is gone: {error}; see the node's MPS daemon"
            return Verdict(ExitCode.FAILED, self._failed, _ERROR)
        return None

    def stop(self) -> None:
        """It is not ours."""


@dataclass
class InContainerMps:
    """One daemon of ours per GPU, and the proof that the ranks are its clients."""

    daemons: tuple[Daemon, ...]
    checks: tuple[UseCheck, ...]
    """One for each daemon, in their order."""
    ranks: range
    world_size: int
    scratch: Scratch
    configured: CudaProcessSharing | None = None
    """What the training configuration asks for."""
    collectors_on_gpu: bool = False
    """Whether physics runs on the rank's GPU as well."""
    use_seconds: float = USE_SECONDS
    figures_seconds: float = FIGURES_SECONDS
    _message: str = "the ranks have not been seen using it yet"
    _ready: bool = False
    _broken: bool = False
    _stopped: bool = False
    _ends: float | None = None
    _figures: bool = False

    @property
    def report(self) -> MpsReport | None:
        """Ready once every rank was seen as a client."""
        return _report(
            MpsMode.IN_CONTAINER,
            len(self.daemons),
            self._message,
            ready=self._ready and not self._broken,
        )

    def environment(self) -> dict[str, str]:
        """Each GPU and its daemon: a rank takes its own when it starts."""
        pipes = [[daemon.gpu, str(daemon.pipe.directory)] for daemon in self.daemons]
        return {ENV_MPS_PIPES: json.dumps(pipes)}

    def poll(self, codes: Mapping[int, int]) -> Verdict | None:
        """That every daemon lives, and is used."""
        for daemon in self.daemons:
            if daemon.pid in codes:
                code, daemon.pid = codes[daemon.pid], 0
                how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                return self._fail(ExitCode.FAILED, daemon.explain(f"{how} during training"))
        return None if self._ready else self._check_use(codes)

    def stop(self) -> None:
        """End the daemons."""
        if self._stopped:
            return
        self._stopped = True
        for check in self.checks:
            check.close()
        stop_daemons(self.daemons)
        if not self._ready and not self._broken:
            log.warning("MPS was never seen in use", reason=self._message)

    def _check_use(self, codes: Mapping[int, int]) -> Verdict | None:
        if not all(self.scratch.started(rank).exists() for rank in self.ranks):
            return None
        for check in self.checks:
            check.poll(codes)
        if all(check.done for check in self.checks):
            return self._confirm()
        if not self._overdue():
            return None
        problem = "; ".join(check.problem for check in self.checks if not check.done)
        return self._fail(
            ExitCode.REFUSED,
            f"accelerator.mps.mode: the daemons run, but are not in use: {problem}. A rank that "
            "CUDA cannot connect would train without MPS: see docs/guide/mps.md, or set Disabled",
        )

    def _overdue(self) -> bool:
        now = time.monotonic()
        if self._ends is None:
            self._ends = now + self.use_seconds
        if not self._figures and self.scratch.progress.exists():
            self._figures = True
            self._ends = min(self._ends, now + self.figures_seconds)
        return now >= self._ends

    def _confirm(self) -> Verdict | None:
        try:
            for evidence in self._evidence():
                path = self.scratch.mps_evidence(evidence.rank)
                write_text_atomically(path, evidence.to_json(), durable=False)
                log.info("MPS is in use", **evidence.model_dump(mode="json", exclude_none=True))
        except (OSError, ValueError, MpsError) as error:
            return self._fail(
                ExitCode.REFUSED, f"accelerator.mps.mode: the evidence does not hold: {error}"
            )
        self._ready = True
        count = len(self.ranks)
        self._message = f"{len(self.daemons)} daemon(s) serve {count} rank(s), each seen as client"
        return None

    def _evidence(self) -> list[MpsEvidence]:
        found = []
        for daemon, check in zip(self.daemons, self.checks, strict=True):
            for served in sorted(check.served.values(), key=lambda one: one.rank):
                told = self.scratch.started(served.rank).read_text(encoding="utf-8")
                evidence = MpsEvidence(
                    # To a run that asks for no sharing of its own the daemon is ambient.
                    configured=self.configured.value if self.configured else None,
                    effective="mps",
                    ambient_server=self.configured is None,
                    validated=True,
                    rank=served.rank,
                    world_size=self.world_size,
                    learner_device="cuda:0",  # the one GPU that the rank sees
                    collector_device="cuda:0" if self.collectors_on_gpu else "cpu",
                    learner_gpu_uuid=daemon.gpu,
                    collector_gpu_uuid=daemon.gpu if self.collectors_on_gpu else None,
                    pipe_directory_env=told or None,
                    pipe_directory=str(daemon.pipe.directory),
                    control_pipe=str(daemon.pipe.path),
                    control_pipe_kind=daemon.pipe.kind(),
                    server_pid=served.server,
                )
                found.append(evidence)
        return found

    def _fail(self, code: ExitCode, message: str) -> Verdict:
        self._broken = True
        self._message = message
        return Verdict(code, message, _ERROR)


def _report(mode: MpsMode, daemons: int, message: str, *, ready: bool) -> MpsReport:
    return MpsReport(mode=mode, ready=ready, daemons=daemons, message=message[:_MESSAGE_LIMIT])
