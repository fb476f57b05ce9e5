"""What a rank has come to so far, and what the parts of its life work with."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from drivetrain_trainer.evidence.fence import FencedError
from drivetrain_trainer.runtime.collector_report import CollectorTotals
from drivetrain_trainer.runtime.faults import RuntimeFault
from drivetrain_trainer.training.manifest import soundness
from drivetrain_trainer.training.reports import note_telemetry
from drivetrain_trainer.training.schedule import Cursor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_api.artifacts.shutdown import ShutdownReport
    from drivetrain_trainer.evidence.run_summary import SummaryWriter
    from drivetrain_trainer.runtime.collector import CollectorProcess
    from drivetrain_trainer.runtime.transport import Transport
    from drivetrain_trainer.telemetry.logger import TrainingLogger
    from drivetrain_trainer.training.inputs import RankInput
    from drivetrain_trainer.training.manifest import ManifestWriter
    from drivetrain_trainer.training.stop import StopSignal
    from drivetrain_trainer.training.supervisor import RankSupervisor

log = structlog.get_logger(__name__)


@dataclass
class RankRecord:
    """Filled while the rank lives; there for its outcome at any moment."""

    cursor: Cursor = field(default_factory=Cursor)
    """Where it stands on the step axis."""
    checkpoint: str | None = None
    """Newest checkpoint that it knows of."""
    summary: SummaryWriter | None = None
    """Of rank 0."""
    logger: TrainingLogger | None = None
    manifest: ManifestWriter | None = None
    transport: Transport | None = None

    def end_telemetry(self) -> None:
        """Write what backends still have to, within a bound, and tell the summary how it went."""
        if self.logger is None:
            return
        counts = self.logger.close()
        if self.summary is not None:
            note_telemetry(self.summary, counts)
            with told_where_unwritten():
                self.summary.write()

    def end_manifest(self, shutdown: ShutdownReport, *, reached_end: bool) -> None:
        """The last counters and the way it ended, for the summary's last write."""
        manifest, transport = self.manifest, self.transport
        if manifest is None:
            return
        if transport is not None and self.logger is not None:
            manifest.note(ingress=transport.ingress.counters())
            self._note_soundness(manifest, transport)
            self.transport = None  # it may be closed where the end is told again
        manifest.complete(shutdown=shutdown.model_dump(mode="json"), reached_end=reached_end)

    def _note_soundness(self, manifest: ManifestWriter, transport: Transport) -> None:
        """What the collector left out at its end: where it gave up, no report told of it."""
        try:
            # Its process is over: what it left half written stays so.
            board = transport.board.read(patience_s=0.0)
        except RuntimeFault as unread:  # it died in the middle of a report
            log.warning("last figures of the collector not read", reason=str(unread))
            return
        if board is None:
            return
        totals = CollectorTotals.decode(board.values)
        manifest.note(soundness=soundness(totals))
        if self.summary is not None:
            known = self.summary.summary.invalid_rows or 0
            self.summary.note(invalid_rows=max(known, totals.invalid_rows))


@dataclass(frozen=True)
class RankContext:
    """What every part of a rank's life works with."""

    given: RankInput
    collector: CollectorProcess
    stop: StopSignal
    supervisor: RankSupervisor
    record: RankRecord


@contextmanager
def told_where_unwritten() -> Iterator[None]:
    """A newer attempt owns the summary, the disk is full, or it is none that a reader would take.

    The outcome counts all the same.
    """
    try:
        yield
    except (FencedError, OSError, ValueError) as unwritten:
        log.warning("run summary not written", reason=str(unwritten))
