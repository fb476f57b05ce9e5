"""A process that shows a run on its standard output, fed as fast as it can.

Usage: ``python -m tests.support.panel.child OUT.json`` and a line to its standard input ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import select
import signal
import statistics
import sys
import termios
import time
from pathlib import Path

import structlog
from tests.support.panel.stored import stored_snapshot

from drivetrain_trainer.telemetry.record import Record
from drivetrain_trainer.telemetry.terminal.terminal import make_terminal

_BETWEEN_LOOKS = 100
"""Reports between two looks at the standard input."""


def main(out: Path) -> None:
    """Show the stored off-policy run until told to end; write what an update cost."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    resized: list[int] = []
    signal.signal(signal.SIGWINCH, lambda number, _: resized.append(number))
    with contextlib.suppress(OSError):  # a pipe; or a terminal that is somebody else's
        fcntl.ioctl(sys.stdout, termios.TIOCSCTTY, 0)
    moment = stored_snapshot("off_policy")
    terminal = make_terminal(moment.facts)
    terminal.start()
    spent: list[int] = []
    while len(spent) % _BETWEEN_LOOKS or not spent or not _told_to_end():
        record = Record(
            env_steps=moment.env_steps,
            iteration=len(spent),
            wall_time=time.time(),
            values=dict(moment.means),
            learner_rows_per_second=moment.rows_per_second,
            buffer_rows=moment.buffer_rows,
        )
        began = time.perf_counter_ns()
        terminal.update(record)
        spent.append(time.perf_counter_ns() - began)
        time.sleep(0.0002)
    terminal.close()
    figures = {
        "updates": len(spent),
        "median_us": statistics.median(spent) / 1000,
        "p99_us": sorted(spent)[int(0.99 * len(spent))] / 1000,
        "resized": len(resized),
    }
    out.write_text(json.dumps(figures), encoding="utf-8")


def _told_to_end() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
