"""The longest name that a run may have fits everything that is named after it."""

from __future__ import annotations

import pytest
from tests.cluster.faults.lab import Lab, manifest
from tests.support.kubernetes.api import RefusedError

from drivetrain_api.crd_rules import MAX_NAME

HOST_NAME_LIMIT = 63
LONGEST = "l" + "o" * (MAX_NAME - 5) + "ngest"[-4:]


def test_the_longest_name_lives_a_whole_life(lab: Lab) -> None:
    assert len(LONGEST) == MAX_NAME
    lab.create(LONGEST, topology={"nodes": 2}, storage={"size": "1Gi"})
    lab.completes(LONGEST)
    names = {name for _, name in lab.children(LONGEST)}
    assert f"{LONGEST}-a2" in names
    lab.witness.check(LONGEST)
    lab.delete(LONGEST)
    lab.gone(LONGEST)


def test_host_names_have_room_for_many_attempts() -> None:
    """A name of 50 leaves 13: ``-a``, the attempt, ``-``, the index."""
    assert len(f"{LONGEST}-a99999-9999") <= HOST_NAME_LIMIT


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{LONGEST}x", "must be at most 50 characters"),
        ("dotted.name", "metadata.name"),
        ("1st", "metadata.name"),  # no Service may be named so
    ],
)
def test_a_name_that_does_not_fit_is_refused_with_the_reason(
    lab: Lab, name: str, words: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        lab.api.create(manifest(name), namespace=lab.namespace)
    assert refused.value.answer.code == 422
    assert words in refused.value.answer.message
