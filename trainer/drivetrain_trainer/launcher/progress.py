"""Where progress goes, and the passing on of what rank 0 writes down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from drivetrain_api.atomic import (
    UnreadableFileError,
    read_bounded,
    write_text_atomically,
)
from drivetrain_api.digest import PROGRESS_LIMIT, Digest, decode, encode
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.labels import ENV_PROGRESS_SINK
from drivetrain_trainer.launcher.configmap import ConfigMapSink
from drivetrain_trainer.launcher.service_account import ProgressConfigMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.digest import MpsReport
    from drivetrain_api.status import Progress

log = structlog.get_logger(__name__)

INTERVAL_SECONDS: Final = 1.0
"""How often progress is looked for."""


class ProgressSink(Protocol):
    """Somewhere that the operator reads progress from."""

    def publish(self, text: str) -> None:
        """Replace what is there; raises OSError where that is known to fail."""

    def finish(self, seconds: float) -> None:
        """See that what was published last arrives, within a bound; never raises."""


@dataclass(frozen=True)
class FileSink:
    """``file:<path>``: a file on a disk that both sides see."""

    path: Path

    def publish(self, text: str) -> None:
        """Replace the file atomically."""
        write_text_atomically(self.path, text, durable=False)

    def finish(self, seconds: float) -> None:
        """Nothing is under way: a file is written when `publish` returns."""


def parse_sink(text: str | None, environ: Mapping[str, str]) -> ProgressSink | None:
    """The sink that ``DRIVETRAIN_PROGRESS_SINK`` names; None where it is unset.

    Args:
        text: Value of that variable.
        environ: Environment of the pod, where the API server is named.

    Raises:
        SpecError: it is no sink, or this is not a pod.
    """
    if text is None:
        return None
    kind, _, target = text.partition(":")
    if kind == "file" and target:
        return FileSink(Path(target))
    if kind == "configmap":
        return ConfigMapSink(ProgressConfigMap.of(target, environ))
    reason = f"unknown; available: configmap:<name>, file:<path>; got {text!r}"
    raise SpecError((Violation(ENV_PROGRESS_SINK, reason),))


class ProgressPublisher:
    """Passes `progress.json` on to the sink whenever it changes; the pod of rank 0 has one.

    Only a valid report gets through, and always under this attempt's own number: what a rank
    writes can neither end an attempt nor speak for another.
    """

    def __init__(self, source: Path, sink: ProgressSink | None, attempt: int) -> None:
        self._source = source
        self._sink = sink
        self._attempt = attempt
        self._seen: tuple[int, int] | None = None
        self._complained = False
        self.latest: Progress | None = None
        """The last valid figures."""
        self.mps: MpsReport | None = None
        """What is known of MPS; None where the run does not ask for it."""

    def poll(self) -> None:
        """Look once; publish what is new."""
        try:
            facts = self._source.lstat()
        except OSError:
            return
        stamp = (facts.st_ino, facts.st_mtime_ns)
        if stamp == self._seen:
            return
        self._seen = stamp
        progress = self._read()
        if progress is not None:
            self.latest = progress
            self._publish_live()

    def report_mps(self, report: MpsReport) -> None:
        """Tell of MPS from now on; at once where that is news."""
        if report != self.mps:
            self.mps = report
            self._publish_live()

    def publish(self, digest: Digest) -> None:
        """Send a report to the sink; a sink that fails costs a warning, never the run."""
        if self._sink is None:
            return
        try:
            self._sink.publish(encode(digest, PROGRESS_LIMIT))
        except (OSError, ValueError) as error:
            if not self._complained:
                log.warning("progress cannot be published", reason=str(error))
            self._complained = True
        else:
            self._complained = False

    def finish(self, digest: Digest, seconds: float) -> None:
        """Send the last report, and wait until it has arrived, at most `seconds`."""
        self.publish(digest)
        if self._sink is not None:
            self._sink.finish(seconds)

    def _publish_live(self) -> None:
        self.publish(Digest(attempt=self._attempt, progress=self.latest, mps=self.mps))

    def _read(self) -> Progress | None:
        try:
            text = read_bounded(self._source, PROGRESS_LIMIT).decode()
        except (FileNotFoundError, UnreadableFileError, UnicodeDecodeError):
            return None
        digest = decode(text, PROGRESS_LIMIT)
        return digest.progress if digest is not None else None
