"""torchrun's process: ``torch.distributed.run`` with a memory of how each rank ended.

torchrun itself returns 1 whatever its ranks returned, and takes seconds to unload Torch.
This process dies with the launcher, writes the ranks' exit codes down, and leaves at once.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from drivetrain_trainer.launcher.parent_death import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

_ERROR_LIMIT = 4096


def main(arguments: Sequence[str]) -> NoReturn:
    """Run torchrun.

    Args:
        arguments: The launcher's process id, the path of the report, torchrun's arguments.
    """
    die_with_parent(int(arguments[0]))
    failed = _run(Path(arguments[1]), list(arguments[2:]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if failed else 0)


def _run(report: Path, arguments: list[str]) -> bool:
    # Imported once the parent's death is seen to: Torch takes seconds.
    from torch.distributed import run  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.api import SignalException  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415

    from drivetrain_api.atomic import write_text_atomically  # noqa: PLC0415
    from drivetrain_trainer.launcher.torchrun import RankFailure, TorchrunReport  # noqa: PLC0415

    logging.disable(logging.ERROR)  # the launcher tells of stops and failures, once
    try:
        run.run(run.parse_args(arguments))  # type: ignore[no-untyped-call]  # torch's own
        found = None
    except SignalException:
        found = TorchrunReport()
    except ChildFailedError as error:
        found = TorchrunReport(
            failures=tuple(
                RankFailure(rank=rank, exit_code=end.exitcode, seen_at=float(end.timestamp))
                for rank, end in sorted(error.failures.items())
            )
        )
    except Exception as error:  # noqa: BLE001 - whatever torchrun raises is its report
        found = TorchrunReport(
            error_type=type(error).__name__[:253], error=str(error)[:_ERROR_LIMIT]
        )
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's handler would raise here
    if found is None:
        return False
    write_text_atomically(report, found.to_json(), durable=False)
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
