"""Entry of a rank: ``torchrun -m drivetrain_trainer.train --spec run.json`` works by hand too.

The collector is spawned before Torch is imported, so that both processes import at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from drivetrain_api import labels
from drivetrain_api.attempt import AttemptSpec
from drivetrain_api.compose import compose, resolve_task
from drivetrain_api.errors import SpecError
from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer.launcher.logs import configure_logging
from drivetrain_trainer.launcher.rank import enter_rank
from drivetrain_trainer.launcher.scratch import Scratch
from drivetrain_trainer.runtime.collector import CollectorProcess
from drivetrain_trainer.training.inputs import RankInput
from drivetrain_trainer.training.memory import check_before_spawn
from drivetrain_trainer.training.stop import StopSignal


def main(argv: list[str] | None = None) -> int:
    """Run one rank; returns its exit code (drivetrain_api.exit_codes)."""
    stop = StopSignal()
    stop.install()
    enter_rank()
    arguments = _parser().parse_args(argv)
    configure_logging(rank=int(os.environ.get("RANK", "0")))
    try:
        attempt = AttemptSpec.model_validate_json(arguments.spec.read_bytes())
        task = resolve_task(attempt.spec)
        given = RankInput(
            attempt=attempt,
            spec=compose(attempt.spec, task),
            task=task,
            storage=arguments.storage,
            scratch=Scratch(arguments.scratch) if arguments.scratch is not None else None,
        )
        _ = given.settings  # refused, if at all, before a collector is spawned
        check_before_spawn(given)
    except (SpecError, OSError, ValueError) as refused:
        print(f"refused: {refused}", file=sys.stderr)  # noqa: T201 - before any log is set up
        return int(ExitCode.REFUSED)
    factory_module = task.factory.partition(":")[0]
    collector = CollectorProcess.spawn(preload=("drivetrain_trainer.envs.factory", factory_module))
    # Torch and all that needs it: imported while the collector imports the same.
    from drivetrain_trainer.training.rank import run_rank  # noqa: PLC0415

    with collector:
        return int(run_rank(given, collector, stop))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m drivetrain_trainer.train",
        description="Train one rank of a TrainingRun; torchrun's environment says which.",
    )
    environment = os.environ
    parser.add_argument(
        "--spec",
        type=Path,
        default=environment.get(labels.ENV_SPEC_FILE, "run.json"),
        help=f"the attempt's run.json (default: ${labels.ENV_SPEC_FILE}, else ./run.json)",
    )
    parser.add_argument(
        "--storage",
        type=Path,
        default=environment.get(labels.ENV_STORAGE, "."),
        help=f"root of the durable storage (default: ${labels.ENV_STORAGE}, else .)",
    )
    parser.add_argument(
        "--scratch",
        type=Path,
        default=environment.get(labels.ENV_SCRATCH),
        help=f"folder for outcome and progress (default: ${labels.ENV_SCRATCH}, else none)",
    )
    return parser


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is written and closed: unloading Torch would only cost another second.
    os._exit(code)
