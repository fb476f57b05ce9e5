"""Which cluster a suite belongs to, in one spelling and without secrets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from fake_api import FakeApi

from drivetrain_api.artifacts.suite_record import SuiteBackend, SuiteCluster, SuiteRecord
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.kubectl.session import Connection, Session
from drivetrain_operator.suite.place import address, place_of, refuse_elsewhere
from drivetrain_operator.suite.plan import outline
from drivetrain_operator.suite.standing import stand
from drivetrain_operator.suite.suite_file import SuiteFile

HERE = SuiteCluster(server="https://a.example:6443", namespace="robots", context="lab")


def record(file: SuiteFile, **changes: Any) -> SuiteRecord:
    standing = stand(
        file,
        outline(file),
        None,
        {},
        backend=SuiteBackend.CLUSTER,
        cluster=HERE,
        fresh=False,
        retry_failed=False,
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return standing.record.model_copy(update=changes)


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("https://a.example:6443", "https://a.example:6443"),
        ("https://A.Example:443/", "https://a.example"),
        ("http://a.example:80", "http://a.example"),
        ("https://who:secret@a.example/k8s/one/?token=x", "https://a.example/k8s/one"),
        ("https://[::1]:6443", "https://[::1]:6443"),
    ],
)
def test_an_address_has_one_spelling_and_no_secrets(url: str, known: str) -> None:
    assert address(url) == known


def test_a_connection_tells_its_place() -> None:
    api: Any = FakeApi()
    api.host = "https://who:secret@a.example:6443/"
    assert place_of(Session(api, "robots", Connection(context="lab"))) == HERE


def test_the_record_names_it_and_keeps_it(suite_file: Callable[..., SuiteFile]) -> None:
    file = suite_file()
    first = record(file)
    assert first.cluster == HERE
    assert SuiteRecord.from_json(first.to_json()).cluster == HERE
    older = first.model_copy(update={"cluster": None})
    for before in (first, older):
        again = stand(
            file,
            outline(file),
            before,
            {},
            backend=SuiteBackend.CLUSTER,
            cluster=HERE.model_copy(update={"context": "other-name"}),
            fresh=False,
            retry_failed=False,
            now=datetime(2026, 1, 2, tzinfo=UTC),
        ).record.cluster
        assert again is not None
        assert again.key == HERE.key
        assert again.context == ("lab" if before is first else "other-name")


@pytest.mark.parametrize(
    ("change", "got", "hints"),
    [
        (
            {"namespace": "other"},
            "got on https://a.example:6443 in namespace other",
            ["go on there with --namespace robots;"],
        ),
        (
            {"server": "https://b.example"},
            "got on https://b.example in namespace robots",
            [
                "go on there with --context lab of https://a.example:6443;",
                "same cluster by another address, move suites/swing/suite.json away",
            ],
        ),
        (
            {"server": "https://b.example", "namespace": "other"},
            "got on https://b.example in namespace other",
            ["--context lab of https://a.example:6443 and --namespace robots;"],
        ),
    ],
)
def test_another_place_is_refused_by_name(
    suite_file: Callable[..., SuiteFile], change: dict[str, str], got: str, hints: list[str]
) -> None:
    file = suite_file()
    with pytest.raises(Refusal) as refused:
        refuse_elsewhere(file, record(file), HERE.model_copy(update={"context": None, **change}))
    (line,) = refused.value.lines
    assert line.startswith("suite swing was started on https://a.example:6443 (context lab) in ")
    assert line.endswith(got)
    for words in hints:
        assert words in refused.value.hint


def test_what_is_not_judged(suite_file: Callable[..., SuiteFile]) -> None:
    """The same place by another context, a record that names none, and what others refuse."""
    file = suite_file()
    away = HERE.model_copy(update={"namespace": "other"})
    refuse_elsewhere(file, record(file), HERE.model_copy(update={"context": "mine"}))
    refuse_elsewhere(file, record(file, cluster=None), away)
    refuse_elsewhere(file, record(file, name="sway"), away)
    refuse_elsewhere(file, record(file, backend=SuiteBackend.LOCAL), away)
