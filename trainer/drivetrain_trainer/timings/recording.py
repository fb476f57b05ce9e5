"""Recording how long a stage took: training does it by itself, code of your own by a call."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import ValidationError

from drivetrain_api.timings.model import StageRun
from drivetrain_api.timings.store import LOCK_PATIENCE_SECONDS, TimingsDirectory
from drivetrain_trainer.hardware.record import this_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_monotonic = time.monotonic
"""Setting the machine's time does not move it, and it never goes back."""


def record_timing(
    directory: Path,
    stage: str,
    seconds: float,
    *,
    run_idx: int | None = None,
    label: str | None = None,
    invocation: str | None = None,
    lock_patience: float = LOCK_PATIENCE_SECONDS,
) -> None:
    """Record how long a stage took, and on what hardware; it is on the disk on return.

    A stage without `run_idx` replaces its value; `run_idx` 0 resets the stage (records of the
    same `invocation` stay); later indices are added, or replace the same index. Other stages,
    and what other processes record meanwhile, are kept.

    Example::

        record_timing(Path("exports/ant/sac"), "render_videos", 81.4, run_idx=2)

    Args:
        directory: The artifact directory; ``timings.json`` and ``timings_hardware.json`` in it.
        stage: Name of the stage, such as ``render_videos``.
        seconds: Its duration by a monotonic clock (see `timed_stage`).
        run_idx: Index of the run (of its seed) from 0; None for a stage measured once.
        label: Words for a person, such as the seed.
        invocation: Id of the experiment's start that the run belongs to.
        lock_patience: Seconds to wait, for each of the two files, for a process that writes it.

    Raises:
        ValueError: seconds are negative or not finite, or a name or index cannot be one.
        TimingsError: a file is torn, foreign, of a later version or read-only (it is left as
            it is), or cannot be written.
    """
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(
            f"seconds of stage {stage!r} are {seconds!r}: must be finite and 0 or more; "
            "measure with time.monotonic(), which a change of the wall clock does not move"
        )
    try:
        run = StageRun(seconds=seconds, run_idx=run_idx, label=label, invocation=invocation)
        store = TimingsDirectory(directory, lock_patience=lock_patience)
        store.record(stage, run, this_process())
    except ValidationError as error:
        found = "; ".join(
            f"{detail['loc'][-1] if detail['loc'] else 'value'} is {detail['input']!r}: "
            f"{detail['msg']}"
            for detail in error.errors(include_url=False)
        )
        raise ValueError(f"cannot record stage {stage!r}: {found}") from error


@contextmanager
def timed_stage(
    directory: Path,
    stage: str,
    *,
    run_idx: int | None = None,
    label: str | None = None,
    invocation: str | None = None,
) -> Iterator[None]:
    """Measure the block and record it as `record_timing` does; a block that raises is not.

    The clock is monotonic: setting the machine's time changes nothing.
    """
    began = _monotonic()
    yield
    seconds = _monotonic() - began
    record_timing(directory, stage, seconds, run_idx=run_idx, label=label, invocation=invocation)
