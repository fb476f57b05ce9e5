"""Ten kinds of bad run fail by their right names, and twenty good ones pass: real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from soaked import Case, Soaks

LEAK = "resource_leak"

BAD = (
    Case("memory leak", ("--load", "leak-memory", "--seconds", "5"), says=LEAK, rule="growth.rss"),
    Case("late leak", ("--load", "late-leak", "--seconds", "6"), says=LEAK, rule="growth.rss"),
    Case("descriptor leak", ("--load", "leak-fds", "--seconds", "5"), says=LEAK, rule="growth.fds"),
    Case(
        "thread leak",
        ("--load", "leak-threads", "--seconds", "5"),
        says=LEAK,
        rule="growth.threads",
    ),
    Case(
        "shared memory leak",
        ("--load", "leak-shm", "--seconds", "5"),
        says=LEAK,
        rule="residual_shm",
    ),
    Case("stall", ("--stall-at", "0.5"), says="timeout/stale_tick", rule="stall"),
    Case("stall, deaf", ("--stall-at", "0.5", "--deaf"), says="timeout/stale_tick", rule="stall"),
    Case(
        "no start",
        ("--start-after", "60"),
        ("--start", "1"),
        says="timeout/stale_tick",
        rule="start",
    ),
    Case(
        "decay",
        ("--slow-down", "30", "--tick", "0.01", "--seconds", "4"),
        says="throughput_decay",
        rule="throughput_decay",
    ),
    Case("child left", ("--orphan", "30"), says="residual_process", rule="residual_processes"),
    Case("killed", ("--crash-at", "0.5"), says="process_crash", rule="exit"),
    Case("crash", ("--crash-at", "0.5", "--exit", "1"), says="learner_failure", rule="exit"),
    Case("restart", ("--restart-at", "0.5"), says="process_crash", rule="restart"),
    Case("torn summary", ("--torn",), says="invalid_summary", rule="summary.torn"),
    Case(
        "manifest 2",
        ("--set", "runtime_manifest.schema_version=2"),
        says="version_mismatch",
        rule="version",
    ),
    Case("backend worker", ("--told", "backend_worker_failure"), says="backend_worker_failure"),
)

GOOD = (
    Case("flat"),
    Case("short", ("--seconds", "0.3")),
    Case("longer", ("--seconds", "4")),
    Case("resumed", ("--resume-ticks", "5000")),
    Case("two ranks", ("--ranks", "2")),
    Case("slot rows that do not divide", ("--slot-rows", "3")),
    Case("partial batch dropped at the end", ("--slot-rows", "3", "--dropped", "2")),
    Case("noisy memory", ("--load", "noisy")),
    Case("saw-tooth", ("--load", "saw-tooth")),
    Case("warm-up growth", ("--load", "warm-up"), ("--warm-up", "0.8")),
    Case("a step", ("--load", "step")),
    Case("shrinking memory", ("--load", "shrinking")),
    Case("descriptors that come and go", ("--load", "fd-churn")),
    Case("shared memory that is removed", ("--load", "shm-removed")),
    Case("zombie", ("--zombie",)),
    Case("a child that ends in time", ("--orphan", "0.2"), ("--grace", "5")),
    Case("uneven ticks", ("--jitter",)),
    Case("somewhat slower", ("--slow-down", "1.3")),
    Case("a pause", ("--pause-at", "0.5")),
    Case("slow start", ("--start-after", "1.5")),
    Case("talkative", ("--chatty",)),
)


@pytest.fixture(scope="module")
def soaks(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Soaks]:
    made = Soaks(tmp_path_factory.mktemp("soaks"))
    wanted = {
        str(item.callspec.params.get("case", ""))
        for item in request.session.items
        if hasattr(item, "callspec")
    }
    for case in (*BAD, *GOOD):
        if str(case) in wanted:
            made.begin(case)
    yield made
    made.pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_a_bad_run_fails_by_its_right_name(soaks: Soaks, case: Case) -> None:
    ended = soaks.of(case)
    artifact = ended.artifact
    assert artifact is not None, ended.stderr
    assert (ended.code, artifact.status.value) == (1, "failed"), ended.stdout
    assert artifact.failure_classification is not None
    assert artifact.failure_classification.value == case.says, artifact.failure_reason
    if case.rule:
        assert artifact.monitor.findings[0].rule == case.rule, artifact.failure_reason
    assert artifact.failure_reason
    assert artifact.failure_reason.startswith(artifact.monitor.findings[0].message)
    assert "FAILED" in ended.stdout


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.name)
def test_a_good_run_passes(soaks: Soaks, case: Case) -> None:
    ended = soaks.of(case)
    artifact = ended.artifact
    assert artifact is not None, ended.stderr
    assert artifact.failure_reason is None
    assert (ended.code, artifact.status.value) == (0, "passed"), ended.stdout
    assert artifact.shutdown is not None
    assert artifact.run_summary is not None
    assert artifact.samples[-1].at_s <= artifact.duration_s
    assert "PASSED" in ended.stdout
    assert Path(str(artifact.console_log)).exists()
