"""The guard before the ingress: each single bad number found, named and left out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from drivetrain_trainer.envs.soundness import UnsoundElement
from drivetrain_trainer.envs.vector_env import ActiveTerm, ManagerKind, StepOutcome
from drivetrain_trainer.runtime.replay_layout import RowLayout
from drivetrain_trainer.runtime.row_guard import InvalidRowsError, RowGuard, RowNames

LAYOUT = RowLayout(observation_dim=3, action_dim=2)
TERMS = (
    ActiveTerm(ManagerKind.ACTION, "control", size=2),
    ActiveTerm(ManagerKind.OBSERVATION, "position", size=1),
    ActiveTerm(ManagerKind.OBSERVATION, "velocity", size=2),
)
NAMES = (
    "observation term 'position' column 0",
    "observation term 'velocity' column 0",
    "observation term 'velocity' column 1",
    "action column 0",
    "action column 1",
    "reward",
    "done",
    "truncated",
    "next observation term 'position' column 0",
    "next observation term 'velocity' column 0",
    "next observation term 'velocity' column 1",
)
ENVS = 6


def sound() -> Tensor:
    return torch.randn(ENVS, LAYOUT.width, generator=torch.Generator().manual_seed(0))


def outcome(*invalid: int, unsound: tuple[UnsoundElement, ...] = ()) -> StepOutcome:
    none = torch.zeros(ENVS, dtype=torch.bool)
    marks = none.clone()
    marks[list(invalid)] = True
    nothing = torch.zeros(ENVS, 3)
    return StepOutcome(nothing, nothing, torch.zeros(ENVS), none, none, marks, unsound)


def guard(*, share: float = 1.0, num_envs: int = ENVS) -> RowGuard:
    return RowGuard(num_envs=num_envs, share=share)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e12])
@pytest.mark.parametrize("env", [0, 3, ENVS - 1])
@pytest.mark.parametrize("column", range(LAYOUT.width))
def test_a_single_bad_element_is_found_wherever_it_is(column: int, env: int, value: float) -> None:
    rows = sound()
    rows[env, column] = value
    own = guard()
    left_out = own.examine(rows, outcome(), RowNames(LAYOUT, TERMS), tick=7, first_env=10)
    assert left_out is not None
    assert left_out.nonzero().tolist() == [[env]]
    assert str(own.first) == f"tick 7, env {10 + env}: {NAMES[column]} is {value:g}"
    assert (own.invalid_rows, own.unreported_rows) == (1, 1)


def test_sound_rows_are_kept_and_nothing_is_counted() -> None:
    own = guard()
    names = RowNames(LAYOUT, TERMS)
    assert own.examine(sound(), outcome(), names, tick=0) is None
    # Their squares add up to more than the limit's, but each is below it.
    large = torch.full((ENVS, LAYOUT.width), 9e9)
    assert own.examine(large, outcome(), names, tick=1) is None
    assert (own.first, own.invalid_rows) == (None, 0)


@pytest.mark.parametrize(
    "terms", [(), TERMS[:2]], ids=["an environment without terms", "sizes that do not add up"]
)
def test_columns_without_a_term_have_a_number(terms: tuple[ActiveTerm, ...]) -> None:
    names = RowNames(LAYOUT, terms)
    assert names[2] == "observation column 2"
    assert names[3] == "action column 0"
    assert names[10] == "next observation column 2"


TOLD = UnsoundElement(4, "simulator warning BADCTRL")


@pytest.mark.parametrize(
    ("column", "env", "first"),
    [
        (None, None, "env 4: simulator warning BADCTRL"),
        (3, 4, "env 4: action column 0 is nan"),
        (5, 4, "env 4: simulator warning BADCTRL"),
    ],
    ids=["the row is sound", "its action is the cause", "its reward follows"],
)
def test_causes_come_before_what_follows(column: int | None, env: int | None, first: str) -> None:
    rows = sound()
    if column is not None and env is not None:
        rows[env, column] = math.nan
    own = guard()
    left_out = own.examine(rows, outcome(4, unsound=(TOLD,)), RowNames(LAYOUT, TERMS), tick=0)
    assert left_out is not None
    assert left_out.nonzero().tolist() == [[4]]
    assert str(own.first) == f"tick 0, {first}"
    assert (own.invalid_rows, own.unreported_rows) == (1, 0)


def test_an_environment_need_not_say_why() -> None:
    own = guard()
    assert own.examine(sound(), outcome(2, 5), RowNames(LAYOUT), tick=0) is not None
    assert str(own.first) == "tick 0, env 2: the environment calls it invalid"
    assert own.invalid_rows == 2


@pytest.mark.parametrize(
    ("num_envs", "share", "window", "allowed"),
    [
        (1, 0.01, 10_000, 100),
        (4, 0.0, 10_000, 0),
        (3, 0.01, 10_002, 100),
        (4096, 0.01, 12_288, 122),
        (20_000, 0.29, 20_000, 5800),
        (100, 0.29, 10_000, 2900),
        (2, 1.0, 10_000, 10_000),
    ],
)
def test_the_bound_is_a_share_of_whole_ticks(
    num_envs: int, share: float, window: int, allowed: int
) -> None:
    own = guard(num_envs=num_envs, share=share)
    assert own.allowed == allowed
    own._latest.append((0, allowed + 1))
    with pytest.raises(InvalidRowsError, match=f"{allowed + 1} of the latest {window} rows"):
        own.end_tick(0)


def test_giving_up_tells_the_first_and_the_newest() -> None:
    own = guard(share=0.0002)  # 2 of 10,002
    names = RowNames(LAYOUT, TERMS)
    for tick in range(2):
        rows = sound()
        rows[tick, 0] = math.nan
        own.examine(rows, outcome(), names, tick=tick)
        own.end_tick(tick)
    rows = sound()
    rows[5, 4] = math.inf
    own.examine(rows, outcome(), names, tick=2)
    with pytest.raises(InvalidRowsError) as caught:
        own.end_tick(2)
    assert str(caught.value) == (
        "3 of the latest 10002 rows could not be trained on, and training.max_invalid_row_share"
        " 0.0002 allows 2; the first: tick 0, env 0: observation term 'position' column 0 is nan;"
        " the newest: tick 2, env 5: action column 1 is inf"
    )


@settings(max_examples=40, deadline=None)
@given(bad=st.lists(st.integers(0, 400), max_size=40, unique=True), share=st.floats(0.0, 0.2))
def test_it_gives_up_in_the_tick_in_which_a_window_holds_too_many(
    bad: list[int], share: float
) -> None:
    """Against a count over all ticks."""
    num_envs = 100  # the window is of 100 ticks
    own = guard(num_envs=num_envs, share=share)
    rows = torch.zeros(1, LAYOUT.width)
    one = replace(outcome(), invalid=torch.ones(1, dtype=torch.bool))
    none = replace(outcome(), invalid=torch.zeros(1, dtype=torch.bool))
    limit = math.floor(share * 10_000 + 1e-9)
    for tick in range(401):
        own.examine(rows, one if tick in bad else none, RowNames(LAYOUT), tick=tick)
        held = sum(tick - 100 < other <= tick for other in bad)
        if held > limit:
            with pytest.raises(InvalidRowsError):
                own.end_tick(tick)
            return
        own.end_tick(tick)
