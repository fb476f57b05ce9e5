"""One attempt in one pod, from the environment to the exit code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.errors import SpecError
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
    final_digest,
    log_verdict,
    summarise,
    write_termination_log,
)
from drivetrain_trainer.launcher.logs import configure_logging
from drivetrain_trainer.launcher.outcome import Verdict, judge
from drivetrain_trainer.launcher.parent_death import adopt_orphans
from drivetrain_trainer.launcher.preflight import Machine, check_run, read_attempt
from drivetrain_trainer.launcher.processes import kill_descendants
from drivetrain_trainer.launcher.progress import ProgressPublisher, parse_sink
from drivetrain_trainer.launcher.reachability import UnreachableError, await_master
from drivetrain_trainer.launcher.scratch import Scratch
from drivetrain_trainer.launcher.settings import LauncherSettings, Rendezvous
from drivetrain_trainer.launcher.supervise import LINGER_SECONDS, Supervisor
from drivetrain_trainer.launcher.torchrun import (
    RANK_MODULE,
    RENDEZVOUS_SECONDS,
    TorchrunPlan,
    start_torchrun,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.attempt import AttemptSpec
    from drivetrain_api.digest import Digest
    from drivetrain_trainer.launcher.signals import StopSignals

log = structlog.get_logger(__name__)

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

    def __post_init__(self) -> None:
        self.settings = LauncherSettings.of(self.environ)

    def run(self) -> ExitCode:
        """Refuse, or train; then tell."""
        configure_logging(process="launcher")
        try:
            verdict = self._train()
        except SpecError as error:
            verdict = Verdict(ExitCode.REFUSED, str(error), "SpecError")
        except UnreachableError as error:
            verdict = Verdict(ExitCode.FAILED, str(error), "UnreachableError")
        except Exception as error:
            log.exception("the launcher failed")
            kill_descendants(LINGER_SECONDS)
            verdict = Verdict(ExitCode.FAILED, f"launcher: {error}", type(error).__name__)
        self._report(verdict)
        log_verdict(verdict)
        return verdict.exit_code

    def _train(self) -> Verdict:
        settings = self.settings
        sink = parse_sink(settings.progress_sink)
        attempt = self.attempt = read_attempt(settings.spec_file)
        configure_logging(process="launcher", run=attempt.name, attempt=attempt.attempt)
        rendezvous = self.rendezvous = Rendezvous.of(self.environ, attempt.spec.topology)
        scratch = Scratch(settings.scratch)
        scratch.prepare(rendezvous.ranks)
        publisher = ProgressPublisher(
            scratch.progress, sink if rendezvous.leads else None, attempt.attempt
        )
        self.publisher = publisher
        checked = check_run(attempt, settings.storage, Machine.of_pod(self.environ))
        if not rendezvous.leads:
            await_master(
                rendezvous,
                RENDEZVOUS_SECONDS,
                stopped=lambda: self.signals.requested is not None,
                pause=self.signals.wait,
            )
        if self.signals.requested is not None:
            name = self.signals.requested.name
            return Verdict(ExitCode.CHECKPOINTED, f"stopped by {name} before training began")
        adopt_orphans()
        supervisor = Supervisor(
            signals=self.signals,
            publisher=publisher,
            scratch=scratch,
            ranks=rendezvous.ranks,
            memory=MemoryCgroup(),
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
        torchrun = start_torchrun(plan, self.environ)
        log.info("torchrun started", pid=torchrun, ranks=list(rendezvous.ranks))
        return judge(rendezvous.ranks, scratch, supervisor.run(torchrun))

    def _report(self, verdict: Verdict) -> None:
        digest = self._digest(verdict)
        if self.publisher is not None:
            self.publisher.publish(digest)
        write_termination_log(
            self.settings.termination_log, digest, create=self.settings.termination_log_given
        )

    def _digest(self, verdict: Verdict) -> Digest:
        """The last report; the pod of rank 0 adds what lies in the run directory."""
        if self.attempt is None or self.publisher is None:
            return final_digest(self.attempt.attempt if self.attempt else 0, verdict)
        number, progress = self.attempt.attempt, self.publisher.latest
        directory = find_run_directory(self.attempt, self.settings.storage)
        if directory is None or self.rendezvous is None or not self.rendezvous.leads:
            return final_digest(number, verdict, progress=progress)
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
            )
        except (FencedError, OSError) as error:
            log.warning("run summary is left as it is", reason=str(error))
        return final_digest(
            number,
            verdict,
            progress=progress,
            summary=summarise(summary, storage, directory) if summary is not None else None,
            artifacts=list_artifacts(directory, storage),
        )
