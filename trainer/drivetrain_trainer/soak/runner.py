"""A monitor in a thread of its own, for a process that has other things to wait for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from drivetrain_trainer.soak.monitor import Monitor

log = structlog.get_logger(__name__)

_JOIN_SECONDS = 10.0


class MonitorThread:
    """Samples every interval until it is stopped; a sample that fails costs a warning."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._stop = threading.Event()
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="soak_monitor", daemon=True)

    def start(self) -> None:
        """Take the first sample soon, and the others every interval."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more samples; what is known of the run is then its last word."""
        self._stop.set()
        self._thread.join(_JOIN_SECONDS)
        self._monitor.watch.look()

    def _run(self) -> None:
        while True:
            try:
                self._monitor.sample()
            except Exception as error:  # noqa: BLE001 - the run must not end for its monitor
                if not self._complained:
                    log.warning("a soak sample failed", reason=str(error))
                self._complained = True
            if self._stop.wait(self._monitor.settings.sample_s):
                return
