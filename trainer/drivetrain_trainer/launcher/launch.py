"""One attempt in one pod, from the environment to the exit code."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.shutdown import Classification, Owner
from drivetrain_api.digest import MpsReport
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.memory import MemoryCgroup
from drivetrain_trainer.evidence.fence import FencedError
from drivetrain_trainer.evidence.run_directory import (
    RUN_SUMMARY,
    fence_of,
    find_run_directory,
)
from drivetrain_trainer.evidence.run_summary import finish_abandoned
from drivetrain_trainer.launcher.artifacts import list_artifacts
from drivetrain_trainer.launcher.digest import (
    MESSAGE_LIMIT,
    final_digest,
    log_verdict,
    plain_text,
    summarise,
    write_termination_log,
)
from drivetrain_trainer.launcher.life import read_life, report_of_the_killed
from drivetrain_trainer.launcher.logs import configure_logging
from drivetrain_trainer.launcher.mps.control import MpsError
from drivetrain_trainer.launcher.mps.mode import DisabledMps
from drivetrain_trainer.launcher.mps.start import start_mps
from drivetrain_trainer.launcher.outcome import STOP_TIMEOUT, Verdict, judge
from drivetrain_trainer.launcher.parent_death import adopt_orphans
from drivetrain_trainer.launcher.preflight import MPS_MODE, Machine, check_run, read_attempt
from drivetrain_trainer.launcher.processes import kill_descendants
from drivetrain_trainer.launcher.progress import ProgressPublisher, parse_sink
from drivetrain_trainer.launcher.reachability import (
    UnreachableError,
    await_master,
    await_own_name,
)
from drivetrain_trainer.launcher.scratch import Scratch
from drivetrain_trainer.launcher.service_account import HOST
from drivetrain_trainer.launcher.settings import LauncherSettings, Rendezvous
from drivetrain_trainer.launcher.soak import AttemptSoak, NoSoak
from drivetrain_trainer.launcher.supervise import LINGER_SECONDS, Supervisor
from drivetrain_trainer.launcher.torchrun import (
    RANK_MODULE,
    RENDEZVOUS_SECONDS,
    TorchrunPlan,
    start_torchrun,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

    from drivetrain_api.attempt import AttemptSpec
    from drivetrain_api.digest import Digest
    from drivetrain_api.soak import SoakConfig
    from drivetrain_api.status import SoakDigest
    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_trainer.launcher.mps.mode import Mps
    from drivetrain_trainer.launcher.signals import StopSignals
    from drivetrain_trainer.launcher.soak import Soak

log = structlog.get_logger(__name__)

FINISH_SECONDS: Final = 5.0
"""Most that the last report may take to reach the sink."""
LEAST_FINISH_SECONDS: Final = 0.25
"""What it is given even where the grace period is over: the kill may come a little late."""
MESSAGE_SECONDS: Final = 0.5
"""Kept of the grace period for the termination message and the end of the process."""
LEAST_GRACE_SECONDS: Final = 5.0
"""Taken for the grace period until the spec was read."""

_STATUS = {
    ExitCode.DONE: RunStatus.COMPLETED,
    ExitCode.CHECKPOINTED: RunStatus.INTERRUPTED,
}


def launch(
    environ: Mapping[str, str], signals: StopSignals, *, module: str = RANK_MODULE
) -> ExitCode:
    """Run the attempt that the environment describes, and report its end.

    Args:
        environ: Environment of the pod.
        signals: Installed already.
        module: What each rank runs.
    """
    return Launch(environ, signals, module).run()


@dataclass
class Launch:
    """What is known of the attempt so far: an early refusal is reported with less of it."""

    environ: Mapping[str, str]
    signals: StopSignals
    module: str
    settings: LauncherSettings = field(init=False)
    attempt: AttemptSpec | None = None
    rendezvous: Rendezvous | None = None
    publisher: ProgressPublisher | None = None
    grace_seconds: float = LEAST_GRACE_SECONDS
    mps: Mps = field(default_factory=DisabledMps)
    soak: SoakDigest | None = None

    def __post_init__(self) -> None:
        self.settings = LauncherSettings.of(self.environ)

    def run(self) -> ExitCode:
        """Refuse, or train; then tell."""
        configure_logging(process="launcher")
        try:
            verdict = self._train()
        except SpecError as error:
            verdict = Verdict(ExitCode.REFUSED, str(error), "SpecError")
            self._note_mps(error)
        except UnreachableError as error:
            verdict = Verdict(ExitCode.FAILED, str(error), "UnreachableError")
        except Exception as error:
            log.exception("the launcher failed")
            kill_descendants(LINGER_SECONDS)
            verdict = Verdict(ExitCode.FAILED, f"launcher: {error}", type(error).__name__)
        finally:
            self.mps.stop()
        self._report(verdict)
        log_verdict(verdict)
        return verdict.exit_code

    def _train(self) -> Verdict:
        settings = self.settings
        sink = parse_sink(settings.progress_sink, self.environ)
        attempt = self.attempt = read_attempt(settings.spec_file)
        self.grace_seconds = attempt.spec.grace_period_seconds
        configure_logging(process="launcher", run=attempt.name, attempt=attempt.attempt)
        rendezvous = self.rendezvous = Rendezvous.of(self.environ, attempt.spec.topology)
        scratch = Scratch(settings.scratch)
        publisher = self.publisher = ProgressPublisher(
            scratch.progress, sink if rendezvous.leads else None, attempt.attempt
        )
        scratch.prepare(rendezvous.ranks)
        machine = Machine.of_pod(self.environ)
        if HOST in self.environ:
            log.info("this pod has", **machine.figures())
        checked = check_run(attempt, settings.storage, machine)
        self._meet(rendezvous)
        if self.signals.requested is not None:
            name = self.signals.requested.name
            return Verdict(ExitCode.CHECKPOINTED, f"stopped by {name} before training began")
        adopt_orphans()
        self._start_mps(checked.spec, scratch, rendezvous.ranks, publisher)
        soak = self._start_soak(checked.spec.soak, attempt, rendezvous)
        supervisor = Supervisor(
            signals=self.signals,
            publisher=publisher,
            scratch=scratch,
            ranks=rendezvous.ranks,
            memory=MemoryCgroup(),
            companion=soak.beside(Watched(self.mps, publisher)),
            grace_seconds=checked.spec.grace_period_seconds,
            alone=rendezvous.nodes == 1,
        )
        plan = TorchrunPlan(
            attempt=attempt,
            rendezvous=rendezvous,
            settings=settings,
            scratch=scratch,
            grace_seconds=checked.spec.grace_period_seconds,
            module=self.module,
        )
        environ = {**self.environ, **self.mps.environment(), **soak.environment()}
        torchrun = start_torchrun(plan, environ)
        log.info("torchrun started", pid=torchrun, ranks=list(rendezvous.ranks))
        ending = supervisor.run(torchrun)
        verdict = judge(rendezvous.ranks, scratch, ending)
        self.soak = soak.conclude(ending, verdict)
        return verdict

    def _start_soak(
        self, config: SoakConfig | None, attempt: AttemptSpec, rendezvous: Rendezvous
    ) -> Soak:
        """The monitor, where one is asked for; the run's files are rank 0's."""
        if config is None or not rendezvous.leads:
            return NoSoak()
        return AttemptSoak(config, attempt, self.settings.storage, self.signals, self.environ)

    def _meet(self, rendezvous: Rendezvous) -> None:
        """Wait until the first pod can be reached, or, where this is it, found."""
        if rendezvous.nodes > 1:
            wait = await_own_name if rendezvous.leads else await_master
            wait(
                rendezvous,
                RENDEZVOUS_SECONDS,
                stopped=lambda: self.signals.requested is not None,
                pause=self.signals.wait,
            )

    def _start_mps(
        self,
        spec: TrainingRunSpec,
        scratch: Scratch,
        ranks: range,
        publisher: ProgressPublisher,
    ) -> None:
        try:
            self.mps = start_mps(spec, self.environ, scratch=scratch, ranks=ranks)
        except MpsError as error:
            raise SpecError((Violation(MPS_MODE, str(error)),)) from error
        if self.mps.report is not None:
            publisher.report_mps(self.mps.report)

    def _note_mps(self, error: SpecError) -> None:
        """Tell of MPS where it is what was refused."""
        told = [found.message for found in error.violations if found.path == MPS_MODE]
        if told and self.attempt is not None and self.publisher is not None:
            mode = self.attempt.spec.accelerator.mps.mode
            message = plain_text("; ".join(told), MESSAGE_LIMIT)
            self.publisher.mps = MpsReport(mode=mode, ready=False, message=message)

    def _report(self, verdict: Verdict) -> None:
        """To the sink first, since a pod that its Job kills is soon gone, message and all."""
        try:
            digest = self._digest(verdict)
        except Exception:
            log.exception("the report lacks what lies in the run directory")
            digest = final_digest(self.attempt.attempt if self.attempt else 0, verdict)
        if self.publisher is not None:
            self.publisher.finish(digest, self._time_to_tell())
        write_termination_log(
            self.settings.termination_log, digest, create=self.settings.termination_log_given
        )

    def _time_to_tell(self) -> float:
        """Seconds for the last publish: the grace period must leave time for the message."""
        asked = self.signals.requested_at
        if asked is None:
            return FINISH_SECONDS
        left = asked + self.grace_seconds - MESSAGE_SECONDS - time.monotonic()
        return min(FINISH_SECONDS, max(LEAST_FINISH_SECONDS, left))

    def _digest(self, verdict: Verdict) -> Digest:
        """The last report; the pod of rank 0 adds what lies in the run directory."""
        if self.attempt is None or self.publisher is None:
            return final_digest(self.attempt.attempt if self.attempt else 0, verdict)
        number, progress, mps = self.attempt.attempt, self.publisher.latest, self.publisher.mps
        directory = find_run_directory(self.attempt, self.settings.storage)
        if directory is None or self.rendezvous is None or not self.rendezvous.leads:
            return final_digest(number, verdict, progress=progress, mps=mps, soak=self.soak)
        status = _STATUS.get(verdict.exit_code, RunStatus.FAILED)
        failed = status is RunStatus.FAILED
        storage = self.settings.storage
        summary = None
        try:
            fence = fence_of(directory, number)
            fence.take()
            summary = finish_abandoned(
                directory / RUN_SUMMARY,
                fence,
                status,
                verdict.error_type if failed else None,
                verdict.message if failed else None,
                shutdown=self._shutdown_of_the_killed(verdict),
            )
        except (FencedError, OSError) as error:
            log.warning("run summary is left as it is", reason=str(error))
        return final_digest(
            number,
            verdict,
            progress=progress,
            summary=summarise(summary, storage, directory) if summary is not None else None,
            artifacts=list_artifacts(directory, storage),
            mps=mps,
            soak=self.soak,
        )

    def _shutdown_of_the_killed(self, verdict: Verdict) -> dict[str, JsonValue] | None:
        """Rank 0's end in its place, where it was killed and so is the cause."""
        life = read_life(Scratch(self.settings.scratch).life(0))
        if life is None or verdict.killed != 0 or self.rendezvous is None:
            return None
        stuck = verdict.error_type == STOP_TIMEOUT
        report = report_of_the_killed(
            life,
            verdict.message,
            Classification.STALE_TICK if stuck else Classification.LEARNER_FAILURE,
            Owner.LEARNER,
            self.rendezvous.nodes * self.rendezvous.ranks_per_node,
        )
        return report.model_dump(mode="json")


@dataclass(frozen=True)
class Watched:
    """MPS beside the ranks, with its news told as they come."""

    mps: Mps
    publisher: ProgressPublisher

    def poll(self, codes: Mapping[int, int]) -> Verdict | None:
        """Look after it; publish what is new."""
        verdict = self.mps.poll(codes)
        report = self.mps.report
        if report is not None:
            self.publisher.report_mps(report)
        return verdict

    def stop(self) -> None:
        """End it."""
        self.mps.stop()
