"""One rank of a run: set up, train, and tell the end honestly."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog

from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer.launcher.life import LifeMark
from drivetrain_trainer.runtime.faults import StopRequestedError
from drivetrain_trainer.training.ending import End, tell_end
from drivetrain_trainer.training.learning import learn
from drivetrain_trainer.training.ranks import named
from drivetrain_trainer.training.record import RankContext, RankRecord
from drivetrain_trainer.training.start import start
from drivetrain_trainer.training.supervisor import RankSupervisor

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.collector import CollectorProcess
    from drivetrain_trainer.training.inputs import RankInput
    from drivetrain_trainer.training.stop import StopSignal

log = structlog.get_logger(__name__)


def run_rank(given: RankInput, collector: CollectorProcess, stop: StopSignal) -> ExitCode:
    """Train as this rank; the summary and the outcome say how it ended, whatever happened."""
    number = int(os.environ.get("RANK", "0"))
    mark = LifeMark(given.scratch.life(number) if given.scratch is not None else None)
    supervisor = RankSupervisor(
        collector, stop, grace_seconds=given.spec.grace_period_seconds, mark=mark
    )
    record = RankRecord()
    end = _live(RankContext(given, collector, stop, supervisor, record))
    supervisor.take_down_collector()
    # Told before backends and ranks are waited for: a launcher that loses patience may kill
    # this process from now on.
    tell_end(given.scratch, record, end, supervisor.report())
    told = len(supervisor.cleanup.errors)
    record.end_telemetry()
    supervisor.cleanup.close()
    if len(supervisor.cleanup.errors) > told:
        tell_end(given.scratch, record, end, supervisor.report())
    supervisor.log()
    return end.code


def _live(context: RankContext) -> End:
    """Set up and train to a boundary, and tell the supervisor why it ended."""
    supervisor = context.supervisor
    try:
        reason = learn(context, start(context))
    except StopRequestedError:
        supervisor.stopped()
        return End(ExitCode.CHECKPOINTED)
    except (Exception, SystemExit) as failure:  # an exit() in a task's code must not be silent
        error = named(failure)
        if supervisor.stopped_in_start_up(error):
            supervisor.stopped()
            return End(ExitCode.CHECKPOINTED)
        supervisor.failed(error)
        end = End.by(error)
        if end.code is ExitCode.FAILED:
            log.exception("training failed")
        return end
    if reason.complete:
        supervisor.completed()
        return End(ExitCode.DONE)
    supervisor.stopped()
    return End(ExitCode.CHECKPOINTED)
