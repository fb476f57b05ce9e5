"""Which members count as complete, and whose timings stay before the others go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_config import ResolvedDevice, ResolvedDevices, RunConfig, RunFacts
from drivetrain_api.artifacts.run_summary import RunSeeds, RunSummary
from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_api.timings.model import StageRun
from drivetrain_api.timings.store import TimingsDirectory
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.suite.plan import Checked, check, outline
from drivetrain_operator.suite.suite_file import SuiteFile
from drivetrain_operator.suite.validation import doubt, prune_timings

ROOT = Path("suites/swing")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CPU = ResolvedDevice(configured="cpu", resolved="cpu")


@pytest.fixture
def members(suite_file: Callable[..., SuiteFile]) -> tuple[Checked, ...]:
    """Three seeds whose files say that all are complete."""
    file = suite_file(seeds=3)
    found = check(file, outline(file), "first")
    for checked in found:
        leave(checked)
    return tuple(in_state(checked, MemberState.COMPLETE) for checked in found)


def in_state(checked: Checked, state: MemberState) -> Checked:
    return replace(checked, member=checked.member.model_copy(update={"state": state}))


def leave(checked: Checked) -> None:
    """What a trainer leaves, and one record of its timings."""
    spec, folder = checked.composed, ROOT / checked.member.run_directory
    folder.mkdir(parents=True)
    summary = RunSummary(
        status=RunStatus.COMPLETED,
        algo=spec.algo.name,
        task=spec.task.name,
        sim_backend=spec.sim,
        log_dir=str(folder),
        seeds=RunSeeds(run=0, algo=0, env=0),
        start_time_utc=NOW,
    )
    facts = RunFacts(
        name=checked.member.name,
        namespace="default",
        uid="u",
        attempt=1,
        created=NOW,
        world_size=1,
        resolved_devices=ResolvedDevices(learner=CPU, collector_tensor=CPU),
        resolved_precision="fp32",
        observation_dim=4,
        action_dim=1,
        versions={},
    )
    (folder / "run_summary.json").write_text(summary.to_json())
    (folder / "run_config.json").write_text(RunConfig.of(spec, facts).to_json())
    run = StageRun(seconds=1.0, run_idx=checked.member.run_idx, invocation="first")
    TimingsDirectory(folder.parent).record("sac_train", run)


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def kept() -> list[int | None]:
    timings = TimingsDirectory(ROOT / "sac/inverted_pendulum").load().timings.root
    return [run.run_idx for run in timings["sac_train"].runs] if timings else []


def test_files_that_say_so_are_no_doubt(members: tuple[Checked, ...]) -> None:
    assert [doubt(ROOT, checked) for checked in members] == [None, None, None]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "run_summary.json").unlink(), "no such file"),
        (lambda folder: (folder / "run_config.json").unlink(), "no such file"),
        (lambda folder: (folder / "run_summary.json").write_text("{"), "not a RunSummary"),
        (lambda folder: (folder / "run_config.json").write_text("[]"), "not a RunConfig"),
        (
            lambda folder: change(folder / "run_summary.json", status="interrupted"),
            "its summary says interrupted",
        ),
        (
            lambda folder: change(folder / "run_config.json", seed=99),
            "it was trained with another configuration",
        ),
        (
            lambda folder: change(
                folder / "run_config.json",
                experiment={"suite": "swing", "run_idx": 1, "invocation": "earlier"},
            ),
            "it was trained with another configuration",
        ),
    ],
)
def test_what_speaks_against_a_complete_member(
    members: tuple[Checked, ...], spoil: Callable[[Path], None], words: str
) -> None:
    spoil(ROOT / members[1].member.run_directory)
    assert words in (doubt(ROOT, members[1]) or "")
    assert doubt(ROOT, members[0]) is None


def test_timings_of_the_validated_alone_stay_where_others_are_to_run(
    members: tuple[Checked, ...],
) -> None:
    prune_timings(ROOT, members, "first")
    assert kept() == [0, 1, 2], "nothing is to run"
    first, second, third = members
    change(ROOT / second.member.run_directory / "run_summary.json", status="failed")
    prune_timings(ROOT, (first, second, in_state(third, MemberState.PENDING)), "first")
    assert kept() == [0]


def test_a_member_at_work_elsewhere_keeps_its_timings(members: tuple[Checked, ...]) -> None:
    first, second, third = members
    state = (first, in_state(second, MemberState.RUNNING), in_state(third, MemberState.PENDING))
    prune_timings(ROOT, state, "first", running=True)
    assert kept() == [0, 1]
    prune_timings(ROOT, state, "first")
    assert kept() == [0]


def test_another_start_keeps_nothing(members: tuple[Checked, ...]) -> None:
    pending = tuple(in_state(checked, MemberState.PENDING) for checked in members)
    prune_timings(ROOT, pending, "second")
    assert kept() == []


def test_timings_that_are_torn_are_refused_and_kept(members: tuple[Checked, ...]) -> None:
    path = ROOT / "sac/inverted_pendulum/timings.json"
    path.write_text("{")
    pending = tuple(in_state(checked, MemberState.PENDING) for checked in members)
    with pytest.raises(Refusal, match=r"timings\.json"):
        prune_timings(ROOT, pending, "first")
    assert path.read_text() == "{"
