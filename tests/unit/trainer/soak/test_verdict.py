"""From what was seen to a verdict: versions, reasons, precedence; no processes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from runtime_manifests import (
    OWN_BUDGET,
    altered_manifests,
    altered_summaries,
    completed_manifest,
    completed_summary,
)
from soak_trainer import Summary, parsed, shutdown

from drivetrain_api.artifacts.soak import (
    MonitorFailure,
    ResidualProcess,
    SoakArtifact,
    SoakFigures,
    SoakFinding,
)
from drivetrain_trainer.soak.evidence import completion_findings, version_findings
from drivetrain_trainer.soak.monitor import Monitor
from drivetrain_trainer.soak.processor_time import NOTHING_USED, ProcessorTime
from drivetrain_trainer.soak.settings import MonitorSettings
from drivetrain_trainer.soak.summary import SummaryWatch, parse
from drivetrain_trainer.soak.verdict import Ending, Origin, judge

Item = TypeVar("Item")
Halves = tuple[Item, Item]
"""What holds until `LATE`, and from then on."""
LATE = 190.0
"""Seconds; a little more than the last third follows."""
STALL = SoakFinding(
    rule="stall", classification=MonitorFailure.STALE_TICK, message="no tick for 120.0 s"
)
LEFT = ResidualProcess(pid=7, name="python", command="python -c pass")


def good(folder: Path) -> dict[str, Any]:
    summary = Summary(folder, parsed([str(folder)]))
    summary.status, summary.ticks = "completed", 5
    summary.shutdown = shutdown("normal_completion")
    return summary.document()


def judged(
    folder: Path,
    document: Any,
    ending: Ending | None = None,
    *,
    rss: Callable[[int], int] = int,
    pace: Halves[float] = (20.0, 20.0),
    processor: Halves[ProcessorTime] = (NOTHING_USED, NOTHING_USED),
) -> SoakArtifact:
    """The verdict on sixty samples of a run whose last summary is `document`."""
    now = 0.0
    steps = 0
    noise = random.Random(1)

    def sampler() -> SoakFigures:
        return SoakFigures(
            processes=1,
            rss_bytes=rss(int(now)),
            pss_bytes=None,
            fds=9,
            threads=3,
            shm_bytes=0,
            gpu_bytes=None,
        )

    watch = SummaryWatch(lambda: folder)
    settings = MonitorSettings(warm_up_s=10.0)
    monitor = Monitor(
        settings, sampler, watch, clock=lambda: now, processor=lambda: processor[now > LATE]
    )
    live = {"algo": "sac", "status": "running", "metric_schema_version": 1}
    for index in range(60):
        now = 5.0 * (index + 1)
        steps += round(5 * pace[now > LATE]) + noise.randint(-3, 3)
        ticks = {"completed_iterations": index, "total_env_steps": steps, "wall_time_sec": now}
        write(folder, json.dumps(live | ticks))
        monitor.sample()
    if document is not None:
        write(folder, document if isinstance(document, str) else json.dumps(document))
    watch.look()
    return judge(monitor, ending or Ending(returncode=0), Origin(("run",), {"host": "here"}))


def write(folder: Path, text: str) -> None:
    temporary = folder / "new"
    temporary.write_text(text)
    temporary.replace(folder / "run_summary.json")


def rules(artifact: SoakArtifact) -> list[str]:
    return [finding.rule for finding in artifact.monitor.findings]


def test_a_good_run_passes_and_its_artifact_is_read_back(tmp_path: Path) -> None:
    found = judged(tmp_path, good(tmp_path))
    assert found.failure_reason is None
    assert SoakArtifact.from_json(found.to_json()) == found
    assert found.resource_summary.throughput.median == pytest.approx(20.0, rel=0.2)
    assert "pss" not in found.resource_summary.resources


ALTERED: dict[str, tuple[Callable[[dict[str, Any]], Any], str, str]] = {
    "schema 2": (lambda d: d.update(metric_schema_version=2), "version", "is 2: only 1"),
    "schema 1.0": (lambda d: d.update(metric_schema_version=1.0), "version", "1.0"),
    "schema true": (lambda d: d.update(metric_schema_version=True), "version", "True"),
    "schema text": (lambda d: d.update(metric_schema_version="1"), "version", "'1'"),
    "no schema": (lambda d: d.pop("metric_schema_version"), "version", "is missing"),
    "manifest 2": (
        lambda d: d["runtime_manifest"].update(schema_version=2),
        "version",
        "runtime_manifest.schema_version is 2",
    ),
    "manifest true": (
        lambda d: d["runtime_manifest"].update(schema_version=True),
        "version",
        "True",
    ),
    "no manifest version": (
        lambda d: d["runtime_manifest"].pop("schema_version"),
        "version",
        "is missing",
    ),
    "manifest text": (lambda d: d.update(runtime_manifest="1"), "version", "'1'"),
    "no manifest": (lambda d: d.pop("runtime_manifest"), "manifest.missing", "has no"),
    "a counter gone": (
        lambda d: d["runtime_manifest"]["replay_ingress"].pop("occupancy"),
        "manifest.fields",
        "replay_ingress.occupancy",
    ),
    "a counter retyped": (
        lambda d: d["runtime_manifest"]["replay_ingress"].update(occupancy="0"),
        "manifest.fields",
        "replay_ingress.occupancy",
    ),
    "no device key": (
        lambda d: d["runtime_manifest"].pop("collector_backend_device"),
        "manifest.fields",
        "collector_backend_device",
    ),
    "no task": (lambda d: d.pop("task"), "summary.fields", "task"),
    "still running": (lambda d: d.update(status="running"), "summary.status", "'running'"),
    "interrupted": (lambda d: d.update(status="interrupted"), "summary.status", "interrupted"),
    "no shutdown": (lambda d: d["runtime_manifest"].pop("shutdown"), "shutdown", "wrote no"),
    "clean-up errors": (
        lambda d: d["runtime_manifest"]["shutdown"]["cleanup"]["errors"].append("leaked"),
        "shutdown",
        "leaked",
    ),
}


@pytest.mark.parametrize("name", ALTERED)
def test_an_altered_summary_fails_by_its_rule(tmp_path: Path, name: str) -> None:
    change, rule, words = ALTERED[name]
    document = copy.deepcopy(good(tmp_path))
    change(document)
    found = judged(tmp_path, document)
    assert rules(found)[0] == rule
    assert words in str(found.failure_reason)
    kind = "version_mismatch" if rule == "version" else "invalid_summary"
    assert found.failure_classification is not None
    assert found.failure_classification.value == kind


def refusals(document: dict[str, Any]) -> list[str]:
    """Rules that the last summary of a run breaks, as the monitor reads it."""
    try:
        found = parse(json.dumps(document).encode())
    except ValueError:
        return ["summary.torn"]
    return [one.rule for one in (*version_findings(found), *completion_findings(found))]


@pytest.mark.parametrize(
    "manifest", [pytest.param(manifest, id=what) for what, manifest in altered_manifests()]
)
def test_an_altered_manifest_is_refused(manifest: dict[str, Any]) -> None:
    ended = {"shutdown": shutdown("normal_completion")}
    assert refusals(completed_summary(runtime_manifest=manifest | ended))
    assert not refusals(
        completed_summary(runtime_manifest=completed_manifest(**OWN_BUDGET, **ended))
    )


@pytest.mark.parametrize(
    "summary", [pytest.param(summary, id=what) for what, summary in altered_summaries()]
)
def test_an_altered_summary_is_refused(summary: dict[str, Any]) -> None:
    assert refusals(summary)
    assert not refusals(completed_summary())


def test_a_summary_cut_in_two_is_torn(tmp_path: Path) -> None:
    found = judged(tmp_path, json.dumps(good(tmp_path))[:400])
    assert rules(found) == ["summary.torn"]


def test_the_producers_words_follow_the_first_cause_and_its_class_wins(tmp_path: Path) -> None:
    document = good(tmp_path)
    document["status"] = "failed"
    document["runtime_manifest"]["shutdown"] = shutdown(
        "collector_failure", owner="collector", exception={"type": "OSError", "message": "gone"}
    )
    told = document["runtime_manifest"]["shutdown"]
    found = judged(tmp_path, document, Ending(returncode=-9, problem=STALL, residual=(LEFT,)))
    assert rules(found) == ["stall", "residual_processes"]
    assert found.failure_classification is not None
    assert found.failure_classification.value == "collector_failure"
    reason = str(found.failure_reason)
    assert reason.startswith("no tick for 120.0 s; 1 process(es) outlived the run: python (7)")
    assert "the run itself says: classification collector_failure, owner collector" in reason
    assert "gone" in reason
    assert found.shutdown == told


def test_without_the_producers_word_the_monitors_class_holds_and_shutdown_is_null(
    tmp_path: Path,
) -> None:
    found = judged(tmp_path, None, Ending(returncode=-9, problem=STALL))
    assert found.shutdown is None
    assert found.failure_classification is not None
    assert found.failure_classification.value == "timeout/stale_tick"


def test_a_hostile_shutdown_is_kept_as_it_came_and_decides_nothing(tmp_path: Path) -> None:
    document = good(tmp_path)
    hostile = {"classification": ["passed"], "owner": {"x": "y" * 9000}, "exception": 1}
    document["runtime_manifest"]["shutdown"] = hostile
    found = judged(tmp_path, document)
    assert found.shutdown == hostile
    assert rules(found) == ["shutdown"]
    assert len(str(found.failure_reason)) <= 4096


@pytest.mark.parametrize(
    ("ending", "rule", "kind"),
    [
        (Ending(returncode=1), "exit", "process_crash"),
        (Ending(returncode=-11), "exit", "process_crash"),
        (Ending(returncode=None), "exit", "process_crash"),
        (Ending(returncode=75, cancelled="stopped"), "cancelled", "external_cancellation"),
        (Ending(returncode=0, residual=(LEFT,)), "residual_processes", "residual_process"),
        (
            Ending(returncode=0, residual_shm=(Path("/dev/shm/x"),)),
            "residual_shm",
            "resource_leak",
        ),
    ],
)
def test_how_it_ended_is_judged(tmp_path: Path, ending: Ending, rule: str, kind: str) -> None:
    found = judged(tmp_path, good(tmp_path), ending)
    assert rules(found) == [rule]
    assert found.failure_classification is not None
    assert found.failure_classification.value == kind


def test_growth_is_judged_behind_the_warm_up(tmp_path: Path) -> None:
    leaking = judged(tmp_path, good(tmp_path), rss=lambda second: second * (4 << 20))
    assert rules(leaking) == ["growth.rss"]
    assert "resident memory grew by" in str(leaking.failure_reason)
    assert leaking.resource_summary.resources["rss"].growth is not None
    rising = judged(tmp_path, good(tmp_path), rss=lambda second: min(second, 60) * (16 << 20))
    assert rules(rising) == []


FREE, BUSY, CROWDED = ProcessorTime(20.0, 0.1), ProcessorTime(5.0), ProcessorTime(5.0, 15.0)
"""Of five seconds: on processors enough; on one of its own; beside neighbours."""


@pytest.mark.parametrize(
    ("pace", "processor", "found"),
    [
        ((20.0, 5.0), (NOTHING_USED, NOTHING_USED), ["throughput_decay"]),  # nothing is known
        ((20.0, 5.0), (BUSY, BUSY), ["throughput_decay"]),  # a step takes more work
        # It waits for something that is no processor.
        ((20.0, 5.0), (BUSY, ProcessorTime(0.5, 0.5)), ["throughput_decay"]),
        ((20.0, 5.0), (FREE, CROWDED), []),  # neighbours come, and take three quarters
        ((20.0, 1.25), (FREE, CROWDED), ["throughput_decay"]),  # and the run loses as much again
        ((20.0, 20.0), (CROWDED, FREE), []),  # neighbours go, which makes the start no better
        ((20.0, 5.0), (BUSY, ProcessorTime(5.0, 0.0, 0.75)), []),  # the host takes its share
    ],
)
def test_decay_is_the_runs_own_and_no_neighbours(
    tmp_path: Path, pace: Halves[float], processor: Halves[ProcessorTime], found: list[str]
) -> None:
    artifact = judged(tmp_path, good(tmp_path), pace=pace, processor=processor)
    assert rules(artifact) == found
    assert SoakArtifact.from_json(artifact.to_json()) == artifact
