"""What a start finds: states on a resume, what may change between two starts, what may not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from suite_files import TEMPLATE

from drivetrain_api.artifacts.suite_record import MemberState, SuiteBackend, SuiteRecord
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.suite.plan import check, outline
from drivetrain_operator.suite.standing import (
    FoundRun,
    Standing,
    next_folder,
    refuse_changed_runs,
    stand,
)
from drivetrain_operator.suite.suite_file import SuiteFile

MakeFile = Callable[..., SuiteFile]
NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
P, R, S, C, F = (
    MemberState.PENDING,
    MemberState.RUNNING,
    MemberState.SUSPENDED,
    MemberState.COMPLETE,
    MemberState.FAILED,
)
LOCAL, CLUSTER = SuiteBackend.LOCAL, SuiteBackend.CLUSTER
PLAIN = "sac/inverted_pendulum/run_0_seed_0"


def start(
    file: SuiteFile,
    record: SuiteRecord | None = None,
    found: dict[str, FoundRun] | None = None,
    **options: Any,
) -> Standing:
    chosen = {"backend": LOCAL, "fresh": False, "retry_failed": False, "now": NOW, **options}
    return stand(file, outline(file), record, found or {}, **chosen)


def recorded(file: SuiteFile, state: MemberState, **options: Any) -> SuiteRecord:
    record = start(file, **options).record
    members = tuple(m.model_copy(update={"state": state, "reason": "so"}) for m in record.members)
    return record.model_copy(update={"members": members, "invocation": "first"})


def run(
    state: MemberState, invocation: str = "first", folder: str = PLAIN, **more: Any
) -> FoundRun:
    values = {"suite": "swing", "log_dir": f"suites/swing/{folder}", "created": NOW, **more}
    return FoundRun(name="swing-s0", invocation=invocation, state=state, **values)


def test_a_first_start_has_a_new_invocation_and_everything_is_pending(suite_file: MakeFile) -> None:
    file = suite_file(seeds=3)
    one, two = start(file).record, start(file).record
    assert one.invocation.startswith("20261130T090000Z-")
    assert one.invocation != two.invocation
    assert [m.state for m in one.members] == [P, P, P]
    assert one.created == NOW


@pytest.mark.parametrize(
    ("before", "there", "retry", "local", "cluster"),
    [
        (P, None, False, (P, False), 1),
        (R, None, False, (P, False), 2),
        (S, None, False, (P, False), 2),
        (C, None, False, (C, False), 1),
        (F, None, False, (F, False), 1),
        (F, None, True, (P, False), 2),
        (P, R, False, (R, False), 1),
        (P, C, False, (C, False), 1),
        (R, R, False, (R, False), 1),
        (R, S, False, (S, False), 1),
        (R, C, False, (C, False), 1),
        (R, F, False, (F, False), 1),
        (R, F, True, (P, True), 2),
        (C, F, False, (F, False), 1),
    ],
)
def test_states_on_a_resume(
    suite_file: MakeFile,
    before: MemberState,
    there: MemberState | None,
    *,
    retry: bool,
    local: tuple[MemberState, bool],
    cluster: int,
) -> None:
    """By the record and the run of this invocation; `cluster` is its folder's number there."""
    file = suite_file()
    found = {"swing-s0": run(there)} if there is not None else {}
    for backend, number in ((LOCAL, 1), (CLUSTER, cluster)):
        record = recorded(file, before, backend=backend)
        standing = start(file, record, found, backend=backend, retry_failed=retry)
        (member,) = standing.record.members
        assert standing.record.invocation == "first"
        assert (member.state, "swing-s0" in standing.stale) == local
        assert member.run_directory == (PLAIN if number == 1 else f"{PLAIN}-{number}")


def test_without_a_record_the_runs_alone_tell_where_it_was(suite_file: MakeFile) -> None:
    file = suite_file()
    found = {"swing-s0": run(R, folder=f"{PLAIN}-2")}
    standing = start(file, None, found, backend=CLUSTER)
    assert standing.record.invocation == "first"
    assert standing.record.members[0].state is R
    assert standing.record.members[0].run_directory == f"{PLAIN}-2"


def test_of_two_invocations_the_newest_is_gone_on_with(suite_file: MakeFile) -> None:
    file = suite_file(seeds=2)
    later = NOW + timedelta(seconds=1)
    old = run(C, "old")
    new = FoundRun("swing-s1", "swing", "new", None, R, later)
    standing = start(file, None, {"swing-s0": old, "swing-s1": new}, backend=CLUSTER)
    assert standing.record.invocation == "new"
    assert [m.state for m in standing.record.members] == [P, R]
    assert standing.stale == {"swing-s0"}


def test_fresh_forgets_the_record_and_replaces_what_runs(suite_file: MakeFile) -> None:
    file = suite_file()
    record, found = recorded(file, C, backend=CLUSTER), {"swing-s0": run(C)}
    standing = start(file, record, found, backend=CLUSTER, fresh=True)
    (member,) = standing.record.members
    assert (member.state, member.reason) == (P, None)
    assert standing.record.invocation not in {"first", record.invocation}
    assert standing.stale == {"swing-s0"}
    assert member.run_directory == f"{PLAIN}-2", "the first is the old run's"


def test_a_run_of_that_name_that_is_not_the_suites_is_refused(suite_file: MakeFile) -> None:
    for fresh in (False, True):
        with pytest.raises(Refusal, match="a run swing-s0 already that is not of this suite"):
            start(suite_file(), None, {"swing-s0": run(C, suite=None)}, fresh=fresh)


def test_more_seeds_and_values_go_on_where_it_was(suite_file: MakeFile) -> None:
    file = suite_file(seeds=[1, 2], grid={"algo.tau": [0.1, 0.2]})
    record = recorded(file, C)
    more = suite_file(seeds=[1, 2, 3], grid={"algo.tau": [0.1, 0.2, 0.3]})
    members = start(more, record).record.members
    assert [m.state for m in members] == [C, C, P, C, C, P, P, P, P]


def test_a_second_variant_leaves_the_folder_of_the_first(suite_file: MakeFile) -> None:
    record = recorded(suite_file(list=[{"name": "a"}]), C)
    two = suite_file(list=[{"name": "a"}, {"name": "b", "set": {"algo.tau": 0.3}}])
    members = start(two, record).record.members
    assert [m.run_directory for m in members] == [PLAIN, f"b/{PLAIN}"]


OTHER = {**TEMPLATE, "algo": {**TEMPLATE["algo"], "numEnvs": 4}}
SPELT = {
    **TEMPLATE,
    "algo": {("num_envs" if k == "numEnvs" else k): v for k, v in TEMPLATE["algo"].items()},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"template": OTHER}, "algo.num_envs: a suite's template does not change; started with 2"),
        ({"template": {**TEMPLATE, "evaluator": {"episodes": 3}}}, "evaluator: a suite's template"),
        ({"seeds": [1]}, "seed 2 (index 1) was started and is no longer there"),
        ({"seeds": [2, 1]}, "seeds: seed 0 was 1; got 2: new ones go to the end"),
        ({"list": [{"name": "b"}]}, "variant a was started and is no longer there"),
        (
            {"list": [{"name": "a", "set": {"algo.tau": 0.5}}]},
            "variant a: algo.tau: started with nothing; got 0.5",
        ),
    ],
)  # fmt: skip
def test_a_change_of_what_was_begun_is_refused_by_field(
    suite_file: MakeFile, change: dict[str, Any], words: str
) -> None:
    base: dict[str, Any] = {"seeds": [1, 2], "list": [{"name": "a"}]}
    record = recorded(suite_file(**base), C)
    with pytest.raises(Refusal) as refused:
        start(suite_file(**{**base, **change}), record)
    assert words in "\n".join(refused.value.lines)
    assert "--fresh starts the suite over" in refused.value.hint


@pytest.mark.parametrize("template", [SPELT, {**TEMPLATE, "restart": {"maxRestarts": 9}}])
def test_another_spelling_and_settings_that_decide_no_result_may_change(
    suite_file: MakeFile, template: dict[str, Any]
) -> None:
    record = recorded(suite_file(), C)
    assert start(suite_file(template=template), record).record.members[0].state is C


def test_the_record_of_another_suite_or_backend_is_refused(suite_file: MakeFile) -> None:
    record = recorded(suite_file(root="r"), C)
    with pytest.raises(Refusal, match="was started on the local: go on there"):
        start(suite_file(root="r"), record, backend=CLUSTER)
    with pytest.raises(Refusal, match="holds the record of suite swing, not of sway"):
        start(suite_file(root="r", name="sway"), record)


def test_without_a_record_runs_with_other_settings_are_refused(suite_file: MakeFile) -> None:
    file = suite_file()
    (held,) = check(file, outline(file), "first")
    spec = held.run.model_dump(mode="json", by_alias=True, exclude_unset=True)["spec"]
    found = {"swing-s0": run(R, spec=spec)}
    refuse_changed_runs(file, [held], found, "first")
    other = suite_file(template=OTHER)
    now = check(other, outline(other), "first")
    with pytest.raises(Refusal) as refused:
        refuse_changed_runs(other, now, found, "first")
    (line,) = refused.value.lines
    assert line.endswith("member swing-s0: algo.num_envs: the run has 2; got 4")


@pytest.mark.parametrize(
    ("folder", "following"),
    [("a/run_0_seed_1", "a/run_0_seed_1-2"), ("a/r_0-2", "a/r_0-3"), ("r-9", "r-10")],
)  # fmt: skip
def test_the_next_folder(folder: str, following: str) -> None:
    assert next_folder(folder) == following
