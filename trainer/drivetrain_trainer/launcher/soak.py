"""`spec.soak`: the monitor beside torchrun, and its verdict on the attempt.

It runs in a thread of the launcher, which outlives the ranks, samples everything below the
launcher, and judges once nothing is left there. The pod of rank 0 has one.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from drivetrain_api import __version__
from drivetrain_api.artifacts.soak import SoakStatus
from drivetrain_api.atomic import write_text_atomically
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.labels import ENV_SOAK_SECONDS
from drivetrain_api.soak import Resource
from drivetrain_api.status import SoakDigest, SoakVerdict
from drivetrain_trainer.evidence.fence import FencedError
from drivetrain_trainer.evidence.run_directory import SOAK, fence_of, find_run_directory
from drivetrain_trainer.hardware.gpu_memory import GpuMemory
from drivetrain_trainer.launcher.digest import plain_text
from drivetrain_trainer.launcher.outcome import Verdict
from drivetrain_trainer.launcher.processes import descendants
from drivetrain_trainer.soak.monitor import Monitor
from drivetrain_trainer.soak.processes import TreeSampler, describe
from drivetrain_trainer.soak.processor_time import ProcessorMeter
from drivetrain_trainer.soak.runner import MonitorThread
from drivetrain_trainer.soak.settings import MonitorSettings
from drivetrain_trainer.soak.shared_files import SharedFiles
from drivetrain_trainer.soak.summary import SummaryWatch
from drivetrain_trainer.soak.verdict import Ending, Origin, judge

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_api.artifacts.soak import ResidualProcess, SoakArtifact, SoakFinding
    from drivetrain_api.attempt import AttemptSpec
    from drivetrain_api.soak import SoakConfig
    from drivetrain_trainer.launcher import outcome
    from drivetrain_trainer.launcher.signals import StopSignals
    from drivetrain_trainer.launcher.supervise import Companion

log = structlog.get_logger(__name__)

REASON_LIMIT: Final = 300
"""Characters of the reason that the report has room for."""
STOPPING_SECONDS: Final = 1.0
"""Grace for what outlives ranks that were asked to stop: the pod's own grace period runs."""
_PAUSE_SECONDS: Final = 0.02


class Soak(Protocol):
    """A monitor of the attempt, or none."""

    def beside(self, companion: Companion) -> Companion:
        """The companion of the ranks, with the monitor looked after as well."""

    def environment(self) -> dict[str, str]:
        """What the ranks must know of it."""

    def conclude(self, ended: outcome.Ending, verdict: Verdict) -> SoakDigest | None:
        """Judge the attempt that has ended, and keep the artifact in its run directory."""


class NoSoak:
    """The spec asks for none, or rank 0 is in another pod."""

    def beside(self, companion: Companion) -> Companion:
        """The companion itself."""
        return companion

    def environment(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def conclude(self, ended: outcome.Ending, verdict: Verdict) -> None:
        """Nothing to judge."""
        del ended, verdict


class AttemptSoak:
    """The monitor of an attempt; it samples from now on."""

    def __init__(
        self,
        config: SoakConfig,
        attempt: AttemptSpec,
        storage: Path,
        signals: StopSignals,
        environ: Mapping[str, str],
    ) -> None:
        """Begin to watch.

        Args:
            config: `spec.soak`.
            attempt: What runs.
            storage: Where its run directory is, or will be.
            signals: Tell whether the pod was asked to stop.
            environ: The pod's; `drivetrain soak` tells its own length there, which holds.
        """
        self._attempt = attempt
        self._storage = storage
        self._signals = signals
        self._files = SharedFiles()
        self._residual: tuple[ResidualProcess, ...] = ()
        self._problem: SoakFinding | None = None
        sampler = TreeSampler(_below, self._files, GpuMemory.here())
        watch = SummaryWatch(lambda: find_run_directory(attempt, storage))
        settings = replace(MonitorSettings.of(config), duration_s=_length(config, environ))
        self.monitor = Monitor(settings, sampler, watch, processor=ProcessorMeter(_below))
        self._thread = MonitorThread(self.monitor)
        self._thread.start()

    def beside(self, companion: Companion) -> Companion:
        """The companion, polled and ended together with the monitor."""
        return SoakedCompanion(companion, self)

    def environment(self) -> dict[str, str]:
        """The length after which the ranks end the run, complete."""
        seconds = self.monitor.settings.duration_s
        return {} if seconds is None else {ENV_SOAK_SECONDS: f"{seconds:g}"}

    def poll(self) -> Verdict | None:
        """A run that has not started in time, has stalled or does not end is ended."""
        self._problem = self._problem or self.monitor.problem() or self.monitor.overrun()
        if self._problem is None:
            return None
        return Verdict(ExitCode.FAILED, f"soak: {self._problem.message}", "SoakError")

    def settle(self) -> None:
        """The ranks have ended: see what outlives them, and take no more samples."""
        grace = self.monitor.settings.grace_s
        if self._signals.requested is not None:
            grace = min(grace, STOPPING_SECONDS)
        ends = time.monotonic() + grace
        while (left := _below()) and time.monotonic() < ends:
            time.sleep(_PAUSE_SECONDS)
        self._residual = describe(left)
        self._thread.stop()

    def conclude(self, ended: outcome.Ending, verdict: Verdict) -> SoakDigest | None:
        """Judge, keep the artifact, and tell the part that the status shows."""
        try:
            return self._conclude(ended, verdict)
        except Exception:
            log.exception("the soak cannot be judged")  # no reason for the attempt to fail
            return None

    def _conclude(self, ended: outcome.Ending, verdict: Verdict) -> SoakDigest:
        code = int(verdict.exit_code)
        asked = ended.stop is not None and code != ExitCode.DONE
        ending = Ending(
            returncode=code,
            problem=self._problem,
            cancelled=f"stopped by {ended.stop.name}" if ended.stop is not None and asked else None,
            residual=self._residual,
            residual_shm=tuple(self._files.left()),
        )
        artifact = judge(self.monitor, ending, self._origin())
        self._keep(artifact)
        log.info(
            "soak ended",
            verdict=artifact.status.value,
            classification=artifact.failure_classification,
            reason=artifact.failure_reason,
        )
        return soak_digest(artifact, self._attempt.attempt)

    def _origin(self) -> Origin:
        attempt = self._attempt
        return Origin(
            command=("drivetrain-launcher",),
            context={
                "run": attempt.name,
                "namespace": attempt.namespace,
                "uid": attempt.uid,
                "attempt": attempt.attempt,
                "ranks": attempt.spec.topology.world_size,
                "run_directory": str(self.monitor.watch.directory or ""),
                "host": platform.node(),
                "drivetrain_version": __version__,
            },
        )

    def _keep(self, artifact: SoakArtifact) -> None:
        """A directory that cannot be written costs the artifact, never the verdict."""
        directory = self.monitor.watch.directory
        if directory is None:
            return
        try:
            fence_of(directory, self._attempt.attempt).check()
            write_text_atomically(directory / SOAK, artifact.to_json())
        except (FencedError, OSError) as error:
            log.warning("the soak's artifact is not kept", reason=str(error))


def _below() -> list[int]:
    return descendants(os.getpid())


def _length(config: SoakConfig, environ: Mapping[str, str]) -> float | None:
    """Seconds of training; what the ranks would refuse is theirs to refuse."""
    try:
        return float(environ[ENV_SOAK_SECONDS])
    except (KeyError, ValueError):
        return config.duration_seconds


class SoakedCompanion:
    """What else runs beside the ranks, and the monitor."""

    def __init__(self, companion: Companion, soak: AttemptSoak) -> None:
        self._companion = companion
        self._soak = soak

    def poll(self, codes: Mapping[int, int]) -> Verdict | None:
        """The other's verdict first."""
        return self._companion.poll(codes) or self._soak.poll()

    def stop(self) -> None:
        """The other first: what it leaves behind outlives the ranks as well."""
        self._companion.stop()
        self._soak.settle()


def soak_digest(artifact: SoakArtifact, attempt: int) -> SoakDigest:
    """The part of an artifact that the status shows."""
    passed = artifact.status is SoakStatus.PASSED
    found = artifact.resource_summary.resources
    rss, pss, gpu = (found.get(kind.value) for kind in (Resource.RSS, Resource.PSS, Resource.GPU))
    reason, kind = artifact.failure_reason, artifact.failure_classification
    return SoakDigest(
        verdict=SoakVerdict.PASSED if passed else SoakVerdict.FAILED,
        attempt=attempt,
        failure_classification=None if kind is None else kind.value,
        failure_reason=None if reason is None else plain_text(reason, REASON_LIMIT),
        duration_seconds=int(artifact.duration_s),
        samples=artifact.monitor.raw_samples,
        peak_rss_bytes=rss and rss.peak,
        peak_pss_bytes=pss and pss.peak,
        peak_gpu_bytes=gpu and gpu.peak,
        rss_growth_bytes=None if rss is None or rss.growth is None else max(0, rss.growth),
        residual_processes=len(artifact.post_shutdown.residual_processes),
    )
