from __future__ import annotations

import pytest

from drivetrain_operator.cluster.resources import JOBS, PODS
from drivetrain_operator.cluster.versions import TOMBSTONES, Tombstones, number


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0", 0),
        ("17", 17),
        ("18446744073709551615", 2**64 - 1),
        ("9" * 5000, 0),
        ("", 0),
        ("abc", 0),
        ("-1", 0),
        ("٣", 0),
        ("1.5", 0),
    ],
)
def test_a_version_is_a_number_or_never_old(version: str, expected: int) -> None:
    assert number(version) == expected


def test_tombstones_are_bounded_and_the_newest_stay() -> None:
    deleted = Tombstones()
    for version in range(1, TOMBSTONES + 3):
        deleted.add(JOBS, ("a", f"j{version}"), version)
        deleted.add(PODS, ("a", f"p{version}"), version)
    assert [len(names) for names in deleted.found.values()] == [TOMBSTONES, TOMBSTONES]
    assert not deleted.buried(JOBS, ("a", "j2"), 1)
    assert deleted.buried(JOBS, ("a", "j9"), 9)
    assert not deleted.buried(JOBS, ("a", "j9"), 10)
    assert not deleted.buried(JOBS, ("a", "j9"), 0)
    assert not deleted.buried(PODS, ("a", "j9"), 9)
    deleted.add(JOBS, ("a", "j9"), 3)
    assert deleted.buried(JOBS, ("a", "j9"), 9), "a later deletion is not forgotten"
