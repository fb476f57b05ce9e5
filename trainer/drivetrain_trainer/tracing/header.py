"""The events that every file of a trace begins with: who wrote it, on which machine, when."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.tracing.segments import event_line
from drivetrain_trainer.tracing.settings import Role

if TYPE_CHECKING:
    from drivetrain_trainer.tracing.settings import TraceSettings

FORMAT_VERSION: Final = 1
HEADER_EVENT: Final = "drivetrain_trace"


def header_lines(
    settings: TraceSettings, segment: int, *, monotonic_ns: int, realtime_ns: int
) -> list[bytes]:
    """Names for viewers, and the wall clock by which machines are put beside each other.

    Args:
        settings: Of the process.
        segment: Files of the process before this one.
        monotonic_ns: The trace's clock at some moment.
        realtime_ns: The wall clock at that moment.
    """
    host = socket.gethostname()
    process_id = os.getpid()
    facts: dict[str, dict[str, object]] = {
        HEADER_EVENT: {
            "version": FORMAT_VERSION,
            "rank": settings.rank,
            "role": settings.role.value,
            "attempt": settings.attempt,
            "segment": segment,
            "host": host,
            "boot_id": boot_id(),
            "process_id": process_id,
            "monotonic_ns": monotonic_ns,
            "realtime_ns": realtime_ns,
        },
        "process_name": {"name": settings.process_name},
        "process_labels": {"labels": f"pid {process_id} on {host}"},
        "process_sort_index": {"sort_index": 2 * settings.rank + (settings.role is Role.COLLECTOR)},
    }
    number = settings.process_number
    return [
        event_line({"ph": "M", "name": name, "pid": number, "tid": number, "ts": 0, "args": args})
        for name, args in facts.items()
    ]


def boot_id() -> str:
    """Names the machine's present boot: processes that share it share the monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
