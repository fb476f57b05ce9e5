"""``suite.json``: written and read back, and what is no record."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.suite_record import (
    MemberState,
    SuiteBackend,
    SuiteMember,
    SuiteRecord,
)


def member(index: int, variant: str = "default", **changes: Any) -> SuiteMember:
    values: dict[str, Any] = {
        "name": f"swing-{variant}-s{index}",
        "variant": variant,
        "overrides": {"algo.tau": 0.1},
        "seed": 40 + index,
        "run_idx": index,
        "algo": "sac",
        "task": "inverted_pendulum",
        "run_directory": f"{variant}/sac/inverted_pendulum/run_{index}_seed_{40 + index}",
        **changes,
    }
    return SuiteMember(**values)


def record(*members: SuiteMember) -> SuiteRecord:
    return SuiteRecord(
        name="swing",
        invocation="20261130T090000Z-abcdef",
        created=datetime(2026, 11, 30, 9, tzinfo=UTC),
        backend=SuiteBackend.LOCAL,
        template={"algo": {"name": "sac"}},
        members=members,
    )


def test_it_is_read_back_as_it_was_written() -> None:
    failed = member(1, state=MemberState.FAILED, reason="a wheel fell off")
    written = record(member(0), failed, member(0, "other"))
    text = written.to_json()
    assert SuiteRecord.from_json(text) == written
    assert json.loads(text)["schema_version"] == 1
    assert written.variants() == ("default", "other")
    assert failed.artifact_directory == "default/sac/inverted_pendulum"


def test_what_a_later_version_adds_is_passed_over() -> None:
    content = json.loads(record(member(0)).to_json())
    content["later"] = content["members"][0]["later"] = 1
    assert SuiteRecord.from_json(json.dumps(content)) == record(member(0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"members": None}, "members"),
        ({"invocation": 3}, "invocation"),
        ({"backend": "moon"}, "backend"),
    ],
)
def test_another_version_and_wrong_values_are_refused(change: dict[str, Any], words: str) -> None:
    content = {**json.loads(record(member(0)).to_json()), **change}
    with pytest.raises(ArtifactError, match=f"not a SuiteRecord: {words}"):
        SuiteRecord.from_json(json.dumps(content))


def test_a_torn_record_is_refused() -> None:
    text = record(member(0)).to_json()
    with pytest.raises(ArtifactError):
        SuiteRecord.from_json(text[: len(text) // 2])


@pytest.mark.parametrize("folder", ["/etc", "../x", "a/../../x", "a\0b"])
def test_a_folder_outside_the_root_is_refused(folder: str) -> None:
    with pytest.raises(ValueError, match="must lie below the root"):
        member(0, run_directory=folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "swing-default-s0"}, "one name"),
        ({"run_directory": member(0).run_directory}, "one run directory"),
        ({"run_idx": 0}, "one variant and run_idx"),
    ],
)
def test_no_two_members_are_one(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"two members have {words}"):
        record(member(0), member(1, **changes))
