"""A rank that kills itself at a stage: ``killed_rank.py MOMENT STAGE [arguments of the rank]``.

MOMENT is `before` or `after` the record of STAGE in timings.json, or `decided`: once the summary
says that the training is continued.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def recording(record: Callable[..., None], moment: str, victim: str) -> Callable[..., None]:
    def recorded(folder: object, stage: str, *args: Any, **kwargs: Any) -> None:
        if (moment, stage) == ("before", victim):
            die()
        record(folder, stage, *args, **kwargs)
        if (moment, stage) == ("after", victim):
            die()

    return recorded


def main() -> int:
    from drivetrain_trainer import train  # noqa: PLC0415 - a collector imports this module as well
    from drivetrain_trainer.training import stage_records  # noqa: PLC0415
    from drivetrain_trainer.training.stages import Stages  # noqa: PLC0415

    moment, stage, *arguments = sys.argv[1:]
    stage_records.record_timing = recording(stage_records.record_timing, moment, stage)
    write = Stages.write

    def decide(self: Stages) -> None:
        write(self)
        if self.state.continued and self.state.evaluation_auto_resume is None:
            die()

    if moment == "decided":
        Stages.write = decide  # type: ignore[method-assign]  # this process is for that alone
    return train.main(arguments)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
