from __future__ import annotations

import pytest

from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.wiring.echoes import Echoes, newer

WALK, RUN = RunKey("lab", "walk"), RunKey("lab", "run")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def echoes(clock: Clock) -> Echoes:
    begun = Echoes(clock)
    begun.begin()
    return begun


def test_a_watch_that_owes_nothing_is_not_silent(echoes: Echoes, clock: Clock) -> None:
    echoes.seen(WALK, "5")
    clock.now += 1000
    assert echoes.silence() == 0.0


@pytest.mark.parametrize("shown", ["9", "10"])
def test_an_event_as_new_as_the_write_settles_it(echoes: Echoes, clock: Clock, shown: str) -> None:
    echoes.expect(WALK, "9")
    clock.now += 3
    assert echoes.silence() == 3.0
    echoes.seen(WALK, "8")
    clock.now += 2
    assert echoes.silence() == 2.0, "behind, but alive"
    echoes.seen(WALK, shown)
    assert echoes.silence() == 0.0


def test_what_was_shown_before_it_was_asked_for_is_not_owed(echoes: Echoes) -> None:
    echoes.seen(WALK, "10")
    echoes.expect(WALK, "9")
    echoes.expect(WALK, "10")
    assert echoes.silence() == 0.0


def test_further_writes_do_not_make_an_old_debt_young(echoes: Echoes, clock: Clock) -> None:
    for version in ("11", "12", "10"):
        echoes.expect(WALK, version)
        clock.now += 10
    assert echoes.silence() == 30.0
    echoes.seen(WALK, "12")
    assert echoes.silence() == 0.0


def test_the_oldest_debt_counts_of_a_watch_that_shows_nothing(echoes: Echoes, clock: Clock) -> None:
    echoes.expect(WALK, "9")
    clock.now += 5
    echoes.expect(RUN, "10")
    clock.now += 5
    assert echoes.silence() == 10.0
    echoes.seen(WALK, "9")
    clock.now += 1
    assert echoes.silence() == 1.0
    clock.now += 200
    assert echoes.silence() == 201.0


def test_a_watch_that_is_not_open_yet_owes_nothing(clock: Clock) -> None:
    """Until all else is listed, which takes long for thousands of runs."""
    echoes = Echoes(clock)
    echoes.expect(WALK, "9")
    clock.now += 500
    assert echoes.silence() == 0.0
    echoes.begin()
    clock.now += 3
    assert echoes.silence() == 3.0


@pytest.mark.parametrize(("apart", "silence"), [(False, 0.0), (True, 9.0)])
def test_another_namespaces_watch_says_nothing_of_this_one(
    clock: Clock, apart: bool, silence: float
) -> None:
    echoes = Echoes(clock, apart=apart)
    echoes.begin()
    echoes.expect(WALK, "9")
    clock.now += 9
    echoes.seen(RunKey("office", "walk"), "10")
    assert echoes.silence() == silence


def test_a_deleted_run_is_owed_no_more(echoes: Echoes, clock: Clock) -> None:
    echoes.expect(WALK, "9")
    echoes.expect(RUN, "10")
    clock.now += 5
    echoes.gone(WALK)
    echoes.keep({WALK})
    assert echoes.silence() == 0.0


@pytest.mark.parametrize(
    ("version", "than", "expected"),
    [
        ("10", "9", True),
        ("9", "10", False),
        ("9", "9", False),
        ("b", "a", True),
        ("a", "a", False),
        ("", "9", True),
    ],
)
def test_versions_are_numbers(version: str, than: str, expected: bool) -> None:
    assert newer(version, than) is expected
