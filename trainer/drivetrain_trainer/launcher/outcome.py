"""What the ranks' ends amount to: one exit code and one cause."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.outcome import RANK_LOST, RankOutcome
from drivetrain_api.atomic import UnreadableFileError, read_bounded
from drivetrain_api.exit_codes import ExitCode, from_status
from drivetrain_trainer.launcher.life import read_life

if TYPE_CHECKING:
    from pathlib import Path

    from drivetrain_trainer.launcher.scratch import Scratch
    from drivetrain_trainer.launcher.torchrun import RankFailure, TorchrunReport

OUTCOME_LIMIT: Final = 128 << 10

STOP_TIMEOUT: Final = "StopTimeout"
"""`error_type` of a rank that had to be killed since it did not stop."""

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Ending:
    """How the processes of this pod ended, as the launcher saw it."""

    torchrun_code: int
    """torchrun's exit code; negative for a signal."""
    report: TorchrunReport | None
    """What torchrun said of its ranks."""
    stop: signal.Signals | None
    """The signal that asked this pod to stop."""
    killed_after: float | None = None
    """Seconds after which the launcher had to kill what did not stop."""
    out_of_memory: str | None = None
    """Words on the memory limit, where the kernel killed a process for it."""
    failure: Verdict | None = None
    """What, beside the ranks, made the launcher end the attempt."""


@dataclass(frozen=True)
class Verdict:
    """The end of an attempt in this pod."""

    exit_code: ExitCode
    message: str
    error_type: str | None = None
    killed: int | None = field(default=None, compare=False)
    """The rank that decided it, where it left no word of its own."""


@dataclass(frozen=True)
class RankEnd:
    """The end of one rank."""

    rank: int
    code: ExitCode
    message: str
    error_type: str | None
    at: float
    """Unix time, for the order of causes; infinite where it only followed another's end."""
    silent: bool = False
    """Whether it was killed before it could say anything."""


def judge(ranks: range, scratch: Scratch, ending: Ending) -> Verdict:
    """One verdict from the outcome file of each rank and what was seen of its process.

    0 only if all ranks are done; 2 or 3 if any rank says so; then what else failed; 75 if all
    stopped in order (or were done); else 1. The message is that of the first rank that decided
    the code.
    """
    ends = [_rank_end(rank, scratch, ending) for rank in ranks]
    codes = {end.code for end in ends}
    for code in (ExitCode.REFUSED, ExitCode.BROKEN):
        if code in codes:
            return _first(ends, code)
    if codes == {ExitCode.DONE}:
        return Verdict(ExitCode.DONE, "training is complete")
    if ending.failure is not None:
        return ending.failure
    if codes <= {ExitCode.DONE, ExitCode.CHECKPOINTED}:
        return Verdict(ExitCode.CHECKPOINTED, _stopped(ends, ending))
    return _torchrun_failure(ending) or _first(ends, ExitCode.FAILED)


def _first(ends: list[RankEnd], code: ExitCode) -> Verdict:
    deciding = min((end for end in ends if end.code is code), key=lambda end: (end.at, end.rank))
    killed = deciding.rank if deciding.silent else None
    return Verdict(code, deciding.message, deciding.error_type, killed)


def _stopped(ends: list[RankEnd], ending: Ending) -> str:
    by = ending.stop.name if ending.stop is not None else "another pod"
    told = [end.message for end in ends if end.message]
    return f"stopped by {by} {told[0] if told else 'before training began'}"


def _torchrun_failure(ending: Ending) -> Verdict | None:
    """The death or error of torchrun itself, where no rank can be blamed for it."""
    if ending.torchrun_code < 0 and ending.killed_after is None:
        name = _signal_name(ending.torchrun_code)
        message = f"torchrun was killed by {name}{_because(ending)}"
        return Verdict(ExitCode.FAILED, message, "Killed")
    report = ending.report
    if report is not None and report.error is not None:
        return Verdict(ExitCode.FAILED, f"torchrun failed: {report.error}", report.error_type)
    if report is None and ending.torchrun_code > 0:
        message = f"torchrun ended with code {ending.torchrun_code} and said nothing of its ranks"
        return Verdict(ExitCode.FAILED, message, "TorchrunError")
    return None


def _rank_end(rank: int, scratch: Scratch, ending: Ending) -> RankEnd:
    path = scratch.outcome(rank)
    try:
        outcome = _read_outcome(path, rank)
        at = path.stat().st_mtime
    except FileNotFoundError:
        return _silent_end(rank, scratch, ending, "ended without reporting an outcome")
    except (UnreadableFileError, ArtifactError, OSError) as error:
        return _silent_end(rank, scratch, ending, f"left an outcome that is not one ({error})")
    code = from_status(outcome.exit_code)
    messages = {ExitCode.DONE: "", ExitCode.CHECKPOINTED: _where(outcome)}
    failure = f"rank {rank}: {_class_of(outcome, code)}{_words(outcome)}"
    if code is ExitCode.FAILED:  # it may be a child of the rank that the kernel killed
        failure += _because(ending)
    if outcome.error_type == RANK_LOST:
        at = math.inf
    return RankEnd(rank, code, messages.get(code, failure), outcome.error_type, at)


def _read_outcome(path: Path, rank: int) -> RankOutcome:
    outcome = RankOutcome.from_json(read_bounded(path, OUTCOME_LIMIT))
    if outcome.rank != rank:
        raise ArtifactError(f"it speaks for rank {outcome.rank}")
    return outcome


def _silent_end(rank: int, scratch: Scratch, ending: Ending, problem: str) -> RankEnd:
    """The end of a rank that left no outcome, from what was seen of its process."""
    failures = ending.report.failures if ending.report is not None else ()
    seen = next((failure for failure in failures if failure.rank == rank), None)
    code = seen.exit_code if seen is not None else None
    expected = {-number for number in _STOP_SIGNALS}
    if ending.killed_after is not None:
        expected.add(-signal.SIGKILL)
    if seen is not None and code not in expected:
        return _seen_end(seen, scratch, ending, problem)
    if ending.killed_after is not None:
        message = f"rank {rank} did not stop within {ending.killed_after:.0f} s and was killed"
        message += _while(rank, scratch)
        return RankEnd(rank, ExitCode.FAILED, message, STOP_TIMEOUT, math.inf, silent=True)
    if ending.stop is not None and not scratch.started(rank).exists():
        return RankEnd(rank, ExitCode.CHECKPOINTED, "", None, math.inf)
    if code is not None:
        # torchrun ends the others with SIGTERM once a rank has failed.
        how = "as it should stop" if ending.stop is not None else "after another rank failed"
        message = f"rank {rank} was ended by {_signal_name(code)} {how}"
        return RankEnd(rank, ExitCode.FAILED, message, "Killed", math.inf)
    return RankEnd(rank, ExitCode.FAILED, f"rank {rank} {problem}", "NoOutcome", math.inf)


def _seen_end(seen: RankFailure, scratch: Scratch, ending: Ending, problem: str) -> RankEnd:
    rank, code = seen.rank, seen.exit_code
    if code < 0:
        where = _while(rank, scratch)
        message = f"rank {rank} was killed by {_signal_name(code)}{where}{_because(ending)}"
        return RankEnd(rank, ExitCode.FAILED, message, "Killed", seen.seen_at, silent=True)
    message = f"rank {rank} ended with code {code} and {problem}"
    meant = from_status(code)
    final = meant if meant in (ExitCode.REFUSED, ExitCode.BROKEN) else ExitCode.FAILED
    return RankEnd(rank, final, message, "NoOutcome", seen.seen_at)


def _while(rank: int, scratch: Scratch) -> str:
    """What a rank was doing when it was killed, as far as it is known."""
    life = read_life(scratch.life(rank))
    return "" if life is None else f" in {life.phase.value}"


def _words(outcome: RankOutcome) -> str:
    return outcome.error or outcome.error_type or "failed"


def _class_of(outcome: RankOutcome, code: ExitCode) -> str:
    """Who began it and when, before the words; a refusal speaks for itself."""
    shutdown = outcome.shutdown
    if shutdown is None or code is ExitCode.REFUSED:
        return ""
    return f"{shutdown.classification.value} ({shutdown.phase.value}): "


def _where(outcome: RankOutcome) -> str:
    if outcome.checkpoint is None:
        return "before the first checkpoint"
    return f"after a checkpoint at {outcome.env_steps} environment steps"


def _because(ending: Ending) -> str:
    return f": {ending.out_of_memory}" if ending.out_of_memory else ""


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
