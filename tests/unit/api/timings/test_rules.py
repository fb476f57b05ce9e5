"""What a record does to those before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_api.timings.model import Stage, StageRun, Timings
from drivetrain_api.timings.rules import recorded, retained


def run(seconds: float, run_idx: int | None = None, invocation: str | None = None) -> StageRun:
    return StageRun(seconds=seconds, run_idx=run_idx, invocation=invocation)


def after(*records: StageRun, stage: str = "sac_train") -> Timings:
    timings = Timings()
    for record in records:
        timings = recorded(timings, stage, record)
    return timings


def seconds(timings: Timings, stage: str = "sac_train") -> list[float]:
    return [found.seconds for found in timings.root[stage].runs]


@pytest.mark.parametrize(
    ("records", "left"),
    [
        pytest.param([run(1, 0), run(2, 1), run(3, 2)], [1, 2, 3], id="later ones are added"),
        pytest.param([run(1, 0), run(2, 1), run(9, 0)], [9], id="0 resets"),
        pytest.param([run(1, 0), run(2, 1), run(9, 1)], [1, 9], id="the same index is replaced"),
        pytest.param([run(1), run(2)], [2], id="without an index: replaced"),
        pytest.param([run(1, 0), run(2, 1), run(9)], [9], id="no index replaces indices"),
        pytest.param([run(1), run(2, 1)], [2], id="an index replaces none"),
        pytest.param(
            [run(1, 0, "a"), run(2, 1, "a"), run(9, 0, "b")], [9], id="a new invocation resets"
        ),
        pytest.param(
            [run(1, 0, "old"), run(5, 2, "a"), run(4, 0, "a")],
            [4, 5],
            id="parallel: what ended before run 0 stays",
        ),
        pytest.param(
            [run(1, 0, "a"), run(2, 1, "a"), run(3, 2, "a"), run(9, 1, "b")],
            [9],
            id="no tail of another invocation, though run 0 is still to come",
        ),
        pytest.param([run(1, 0, "a"), run(2, 1)], [1, 2], id="no invocation named: added"),
        pytest.param([run(1, 0, "a"), run(2, 0)], [2], id="no invocation named: 0 resets"),
        pytest.param([run(3, 2), run(2, 1), run(9, 10)], [2, 3, 9], id="by index"),
    ],
)
def test_the_replacement_rules(records: list[StageRun], left: list[float]) -> None:
    timings = after(*records)
    assert seconds(timings) == left
    assert timings.root["sac_train"].total_seconds == sum(left)


def test_other_stages_are_left_alone() -> None:
    before = after(run(1, 0, "a"), run(2, 1, "a"), stage="checkpoint_save")
    timings = recorded(before, "sac_train", run(9, 0, "b"))
    assert seconds(timings, "checkpoint_save") == [1, 2]
    assert seconds(before, "checkpoint_save") == [1, 2]
    assert "sac_train" not in before.root


def staged(**stages: list[StageRun]) -> Timings:
    return Timings({name: Stage.of(runs) for name, runs in stages.items()})


def test_a_partial_resume_keeps_the_completed_prefix_alone() -> None:
    before = staged(
        sac_train=[run(1, 0, "a"), run(2, 1, "a"), run(3, 2, "a")],
        checkpoint_save=[run(0.1, 0, "a"), run(0.2, 1, "a")],
        evaluation=[run(5, 2, "a")],
        cross_play=[run(7)],
    )
    resumed = retained(before, {0, 1}, "a")
    assert resumed == staged(
        sac_train=[run(1, 0, "a"), run(2, 1, "a")],
        checkpoint_save=[run(0.1, 0, "a"), run(0.2, 1, "a")],
    )
    assert seconds(recorded(resumed, "sac_train", run(4, 2, "a"))) == [1, 2, 4]


def test_a_partial_resume_drops_other_invocations() -> None:
    before = staged(sac_train=[run(1, 0, "a"), run(2, 1, "b"), run(3, 2)])
    assert seconds(retained(before, {0, 1, 2}, "b")) == [2]
    assert seconds(retained(before, {0, 2}, None)) == [1, 3]
    assert retained(before, set(), "a") == Timings()


_RUNS = st.builds(
    run,
    st.floats(0, 1e6),
    st.none() | st.integers(0, 4),
    st.none() | st.sampled_from(["a", "b"]),
)


@given(st.lists(st.tuples(st.sampled_from(["x", "y"]), _RUNS), max_size=30))
def test_a_stage_never_holds_an_index_twice_nor_two_invocations(
    records: list[tuple[str, StageRun]],
) -> None:
    timings = Timings()
    for name, new in records:
        timings = recorded(timings, name, new)
        stage = timings.root[name]
        indices = [old.run_idx for old in stage.runs]
        assert new in stage.runs
        assert len(set(indices)) == len(indices)
        assert None not in indices or len(indices) == 1
        assert stage.total_seconds == sum(old.seconds for old in stage.runs)
        if new.run_idx is not None and new.invocation is not None:
            assert {old.invocation for old in stage.runs} == {new.invocation}
        if new.run_idx == 0 and new.invocation is None:
            assert stage.runs == (new,)


@given(st.lists(_RUNS, max_size=12), st.sets(st.integers(0, 4)), st.sampled_from(["a", None]))
def test_only_completed_runs_survive_and_all_of_them(
    runs: list[StageRun], completed: set[int], invocation: str | None
) -> None:
    before = after(*runs)
    survived = retained(before, completed, invocation)
    expected = [
        old
        for stage in before.root.values()
        for old in stage.runs
        if old.run_idx in completed and invocation in (None, old.invocation)
    ]
    assert [old for stage in survived.root.values() for old in stage.runs] == expected
    assert all(stage.runs for stage in survived.root.values())
