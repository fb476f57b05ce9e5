"""The table of verdicts: what ranks reported, what was seen of them, what it amounts to."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivetrain_api.artifacts.outcome import RANK_LOST, RankOutcome, RunStatus
from drivetrain_api.artifacts.shutdown import (
    Classification,
    CleanupSnapshot,
    LearnerCoordination,
    LifePhase,
    Owner,
    ShutdownReport,
)
from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer.launcher.life import Life, LifeMark
from drivetrain_trainer.launcher.outcome import Ending, Verdict, judge
from drivetrain_trainer.launcher.scratch import Scratch
from drivetrain_trainer.launcher.torchrun import RankFailure, TorchrunReport

STATUS = {0: RunStatus.COMPLETED, 75: RunStatus.INTERRUPTED}
CLEAN = Ending(torchrun_code=0, report=None, stop=None)
STOPPED = Ending(torchrun_code=1, report=TorchrunReport(), stop=signal.SIGTERM)
SPEAK = "after a checkpoint at 640 environment steps"


@dataclass(frozen=True)
class Word:
    """An outcome file: its code, and when it was written."""

    code: int
    at: float = 1000.0
    checkpoint: str | None = "checkpoints/x"
    error: str | None = "as told"
    error_type: str = "ToldError"


def saw(stop: signal.Signals | None = None, **ends: int) -> Ending:
    """What torchrun saw: rank=exit code at second 1000 + rank."""
    return Ending(
        torchrun_code=1,
        report=TorchrunReport(
            failures=tuple(
                RankFailure(rank=int(name[1:]), exit_code=code, seen_at=1000.0 + int(name[1:]))
                for name, code in ends.items()
            )
        ),
        stop=stop,
    )


def leave(folder: Path, ranks: list[Word | bytes | None], started: bool = True) -> Scratch:
    scratch = Scratch(folder)
    for rank, word in enumerate(ranks):
        if started:
            scratch.started(rank).touch()
        path = scratch.outcome(rank)
        if isinstance(word, bytes):
            path.write_bytes(word)
        elif word is not None:
            failed = word.code not in STATUS
            outcome = RankOutcome(
                rank=rank,
                exit_code=word.code,
                status=STATUS.get(word.code, RunStatus.FAILED),
                error_type=word.error_type if failed else None,
                error=word.error if failed else None,
                env_steps=640,
                checkpoint=word.checkpoint,
            )
            path.write_text(outcome.to_json())
            os.utime(path, (word.at, word.at))
    return scratch


@pytest.mark.parametrize(
    ("ranks", "ending", "code", "message"),
    [
        pytest.param([Word(0)], CLEAN, 0, "training is complete", id="done"),
        pytest.param([Word(0), Word(0)], CLEAN, 0, "training is complete", id="all done"),
        pytest.param([Word(75)], STOPPED, 75, f"stopped by SIGTERM {SPEAK}", id="stopped"),
        pytest.param(
            [Word(75), Word(75)],
            saw(r0=75, r1=75),
            75,
            f"stopped by another pod {SPEAK}",
            id="stopped without a signal of our own",
        ),
        pytest.param(
            [Word(0), Word(75)], STOPPED, 75, f"stopped by SIGTERM {SPEAK}", id="done and stopped"
        ),
        pytest.param(
            [Word(75, checkpoint=None)],
            STOPPED,
            75,
            "stopped by SIGTERM before the first checkpoint",
            id="stopped in warm-up",
        ),
        pytest.param(
            [Word(75)],
            replace(CLEAN, failure=Verdict(ExitCode.FAILED, "the daemon died")),
            1,
            "the daemon died",
            id="stopped because something beside it failed",
        ),
        pytest.param(
            [Word(0)],
            replace(CLEAN, failure=Verdict(ExitCode.FAILED, "the daemon died")),
            0,
            "training is complete",
            id="done before something beside it failed",
        ),
        pytest.param(
            [Word(1, at=1.0, error="peer", error_type=RANK_LOST), Word(1, at=2.0, error="cause")],
            saw(r0=1, r1=1),
            1,
            "rank 1: cause",
            id="a rank that lost another is not the cause",
        ),
        pytest.param(
            [Word(1, at=1.0, error="peer", error_type=RANK_LOST), None],
            saw(r0=1, r1=-9),
            1,
            "rank 1 was killed by SIGKILL",
            id="nor where that one left no word",
        ),
        pytest.param(
            [Word(3)],
            replace(saw(r0=3), failure=Verdict(ExitCode.FAILED, "the daemon died")),
            3,
            "rank 0: as told",
            id="a rank's own verdict for good comes first",
        ),
        pytest.param(
            [None],
            replace(saw(r0=-11), failure=Verdict(ExitCode.FAILED, "the daemon died")),
            1,
            "the daemon died",
            id="a rank that fell with it is not to blame",
        ),
        pytest.param([Word(1)], saw(r0=1), 1, "rank 0: as told", id="failed"),
        pytest.param([Word(1, error=None)], saw(r0=1), 1, "rank 0: ToldError", id="no words"),
        pytest.param([Word(42)], saw(r0=42), 1, "rank 0: as told", id="a code of no contract"),
        pytest.param([Word(2)], saw(r0=2), 2, "rank 0: as told", id="refused"),
        pytest.param([Word(3)], saw(r0=3), 3, "rank 0: as told", id="broken"),
        pytest.param([Word(75), Word(2)], saw(r1=2), 2, "rank 1: as told", id="any 2 is 2"),
        pytest.param([Word(1), Word(3)], saw(r1=3), 3, "rank 1: as told", id="any 3 is 3"),
        pytest.param([Word(3), Word(2)], saw(r1=2), 2, "rank 1: as told", id="2 before 3"),
        pytest.param([Word(0), Word(1)], saw(r1=1), 1, "rank 1: as told", id="done and failed"),
        pytest.param(
            [Word(1, at=1001.5), Word(1, at=1000.5, error="first")],
            saw(r0=1, r1=1),
            1,
            "rank 1: first",
            id="the first cause wins",
        ),
        pytest.param(
            [Word(1, at=1001.5), None],
            saw(r0=1, r1=-9),
            1,
            "rank 1 was killed by SIGKILL",
            id="killed, and its peer failed for it",
        ),
        pytest.param(
            [Word(1, at=1000.5), None],
            saw(r0=1, r1=-15),
            1,
            "rank 0: as told",
            id="failed, and its peer was ended for it",
        ),
        pytest.param([None], saw(r0=-11), 1, "rank 0 was killed by SIGSEGV", id="crashed"),
        pytest.param([None], saw(r0=-34), 1, "rank 0 was killed by SIGRTMIN", id="odd signal"),
        pytest.param([None], saw(r0=-40), 1, "rank 0 was killed by signal 40", id="no name"),
        pytest.param(
            [None],
            saw(r0=2),
            2,
            "rank 0 ended with code 2 and ended without reporting an outcome",
            id="a usage error before any outcome",
        ),
        pytest.param(
            [None], saw(r0=75), 1, "rank 0 ended with code 75 and ended", id="75 needs an outcome"
        ),
        pytest.param(
            [None], CLEAN, 1, "rank 0 ended without reporting an outcome", id="0 needs an outcome"
        ),
        pytest.param(
            [Word(0), None],
            STOPPED,
            1,
            "rank 1 ended without reporting an outcome",
            id="silent while it should stop",
        ),
        pytest.param([b"{"], CLEAN, 1, "rank 0 left an outcome that is not one", id="no JSON"),
        pytest.param([b"\xff" * 140_000], CLEAN, 1, "larger than 131072 bytes", id="huge"),
        pytest.param(
            [Word(0), b'{"rank": 0, "exit_code": 0, "status": "completed"}'],
            CLEAN,
            1,
            "it speaks for rank 0",
            id="speaks for another",
        ),
        pytest.param(
            [b'{"rank": 0, "exit_code": true, "status": "completed"}'],
            CLEAN,
            1,
            "exit_code",
            id="a flag is no code",
        ),
        pytest.param(
            [None],
            Ending(torchrun_code=-9, report=None, stop=None),
            1,
            "torchrun was killed by SIGKILL",
            id="torchrun killed",
        ),
        pytest.param(
            [Word(0)],
            Ending(torchrun_code=-9, report=None, stop=None),
            0,
            "training is complete",
            id="torchrun killed after the end",
        ),
        pytest.param(
            [None],
            Ending(
                torchrun_code=1,
                report=TorchrunReport(error_type="DistNetworkError", error="EADDRINUSE"),
                stop=None,
            ),
            1,
            "torchrun failed: EADDRINUSE",
            id="torchrun failed",
        ),
        pytest.param(
            [None],
            Ending(torchrun_code=1, report=None, stop=None),
            1,
            "torchrun ended with code 1 and said nothing of its ranks",
            id="torchrun could not start",
        ),
        pytest.param(
            [Word(75), None],
            replace(STOPPED, killed_after=54.2),
            1,
            "rank 1 did not stop within 54 s and was killed",
            id="killed by us",
        ),
        pytest.param(
            [Word(75), None],
            replace(saw(signal.SIGTERM, r1=-9), killed_after=54.2),
            1,
            "rank 1 did not stop within 54 s and was killed",
            id="killed by us, seen by torchrun",
        ),
        pytest.param(
            [None, None],
            replace(saw(signal.SIGTERM, r0=-9, r1=-11), killed_after=54.2),
            1,
            "rank 1 was killed by SIGSEGV",
            id="a crash while another did not stop",
        ),
        pytest.param(
            [None],
            replace(saw(r0=-9), out_of_memory="out of memory (512 MiB)"),
            1,
            "rank 0 was killed by SIGKILL: out of memory (512 MiB)",
            id="out of memory",
        ),
        pytest.param(
            [Word(1, error="collector died")],
            replace(saw(r0=1), out_of_memory="out of memory (512 MiB)"),
            1,
            "rank 0: collector died: out of memory (512 MiB)",
            id="a child of the rank out of memory",
        ),
    ],
)
def test_verdict(tmp_path: Path, ranks: list[Any], ending: Ending, code: int, message: str) -> None:
    verdict = judge(range(len(ranks)), leave(tmp_path, ranks), ending)
    assert verdict.exit_code is ExitCode(code)
    assert message in verdict.message


@pytest.mark.parametrize(
    "ending",
    [
        STOPPED,
        saw(signal.SIGTERM, r0=-15),
        Ending(torchrun_code=-15, report=None, stop=signal.SIGTERM),
    ],
)
def test_a_signal_before_a_rank_began_has_cost_nothing(tmp_path: Path, ending: Ending) -> None:
    verdict = judge(range(1), leave(tmp_path, [None], started=False), ending)
    assert verdict.exit_code is ExitCode.CHECKPOINTED
    assert verdict.message == "stopped by SIGTERM before training began"


def test_a_rank_that_is_gone_before_it_began_without_a_signal_has_failed(tmp_path: Path) -> None:
    verdict = judge(range(1), leave(tmp_path, [None], started=False), CLEAN)
    assert verdict.exit_code is ExitCode.FAILED


def test_only_the_ranks_of_this_pod_count(tmp_path: Path) -> None:
    scratch = leave(tmp_path, [Word(1), Word(1), Word(0), Word(0)])
    assert judge(range(2, 4), scratch, CLEAN).exit_code is ExitCode.DONE


def test_a_link_to_somewhere_else_is_not_followed(tmp_path: Path) -> None:
    scratch = leave(tmp_path, [Word(0)])
    scratch.outcome(0).rename(tmp_path / "real")
    scratch.outcome(0).symlink_to(tmp_path / "real")
    assert judge(range(1), scratch, CLEAN).exit_code is ExitCode.FAILED


RULES: list[tuple[Callable[[set[int]], bool], ExitCode]] = [
    (lambda codes: 2 in codes, ExitCode.REFUSED),
    (lambda codes: 3 in codes, ExitCode.BROKEN),
    (lambda codes: codes == {0}, ExitCode.DONE),
    (lambda codes: codes <= {0, 75}, ExitCode.CHECKPOINTED),
    (lambda codes: True, ExitCode.FAILED),  # noqa: ARG005 - the rest
]


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(codes=st.lists(st.sampled_from([0, 1, 2, 3, 75, 13, 255]), min_size=1, max_size=4))
def test_the_rule_for_any_mix(tmp_path: Path, codes: list[int]) -> None:
    scratch = leave(tmp_path, [Word(code) for code in codes])
    verdict = judge(range(len(codes)), scratch, STOPPED)
    assert verdict.exit_code is next(code for rule, code in RULES if rule(set(codes)))
    assert verdict.message


def shutdown(classification: Classification, phase: LifePhase) -> ShutdownReport:
    return ShutdownReport(
        classification=classification,
        owner=Owner.UNKNOWN,
        phase=phase,
        iteration=0,
        coordination_tick=None,
        inference_epoch=None,
        exception=None,
        learner_coordination=LearnerCoordination(rank=0, world_size=2, env_steps=0),
        inference_ring=None,
        replay_ingress=None,
        collector=None,
        cleanup=CleanupSnapshot(),
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (1, "rank 0: collector_failure (learning): as told"),
        (3, "rank 0: collector_failure (learning): as told"),
        (2, "rank 0: as told"),
    ],
)
def test_a_failure_begins_with_its_class_and_phase(tmp_path: Path, code: int, message: str) -> None:
    scratch = leave(tmp_path, [None])
    outcome = RankOutcome(
        rank=0,
        exit_code=code,
        status=RunStatus.FAILED,
        error="as told",
        shutdown=shutdown(Classification.COLLECTOR_FAILURE, LifePhase.LEARNING),
    )
    scratch.outcome(0).write_text(outcome.to_json())

    assert judge(range(1), scratch, saw(r0=code)) == Verdict(ExitCode(code), message)


def test_the_largest_shutdown_report_is_read(tmp_path: Path) -> None:
    scratch = leave(tmp_path, [None])
    worst = shutdown(Classification.LEARNER_FAILURE, LifePhase.FINISH).model_copy(
        update={"cleanup": CleanupSnapshot(errors=("\N{GRINNING FACE}" * 1024,) * 16)}
    )
    outcome = RankOutcome(
        rank=0, exit_code=1, status=RunStatus.FAILED, error="x" * 4096, shutdown=worst
    )
    scratch.outcome(0).write_text(outcome.to_json())

    assert "learner_failure (finish)" in judge(range(1), scratch, saw(r0=1)).message


@pytest.mark.parametrize("phase", [*LifePhase])
def test_a_killed_rank_is_told_with_its_phase(tmp_path: Path, phase: LifePhase) -> None:
    scratch = leave(tmp_path, [None])
    LifeMark(scratch.life(0)).write(Life(phase, 7, 5, 28))

    verdict = judge(range(1), scratch, saw(r0=-9))

    assert verdict.message == f"rank 0 was killed by SIGKILL in {phase.value}"
    assert verdict.killed == 0
