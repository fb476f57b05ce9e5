from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from drivetrain_api.status import Phase
from drivetrain_operator.wiring.metrics import Gauges, Metrics

PAGE = Path(__file__).parents[4] / "docs" / "operations" / "operator.md"
GAUGES = Gauges(
    phases=lambda: {"Running": 3, "": 2, "Pending": 1, "Complete": 0},
    queue_depth=lambda: 4,
    queue_delayed=lambda: 5,
    oldest_wait=lambda: 1.5,
    oldest_work=lambda: 0.25,
    watches=lambda: [("jobs", 3.0), ("trainingruns", 0.0)],
    events_dropped=lambda: 6,
)


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics()
    made.watch(GAUGES)
    return made


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
    return None


def test_calls_are_counted_by_verb_resource_and_code(metrics: Metrics) -> None:
    for code in ("200", "200", "409"):
        metrics.called("patch", "trainingruns/status", code, 0.02)
    metrics.called("watch", "jobs", "200", 0.3)
    labels = {"verb": "patch", "resource": "trainingruns/status"}
    assert value(metrics, "drivetrain_api_requests_total", **labels, code="200") == 2
    assert value(metrics, "drivetrain_api_requests_total", **labels, code="409") == 1
    assert value(metrics, "drivetrain_api_request_seconds_count", verb="patch") == 3
    assert value(metrics, "drivetrain_api_request_seconds_count", verb="watch") is None


def test_passes_are_timed_by_phase_and_step(metrics: Metrics) -> None:
    metrics.passed(Phase.RUNNING, "decide", 0.001)
    metrics.passed(None, "apply", 0.5)
    name = "drivetrain_reconcile_seconds_count"
    assert value(metrics, name, phase="Running", step="decide") == 1
    assert value(metrics, name, phase="Pending", step="apply") == 1


def test_counters(metrics: Metrics) -> None:
    metrics.failed("Conflict")
    metrics.restarted("OOMKilled", 2)
    metrics.wrote()
    metrics.held()
    assert value(metrics, "drivetrain_reconcile_failures_total", reason="Conflict") == 1
    assert value(metrics, "drivetrain_restarts_total", reason="OOMKilled") == 2
    assert value(metrics, "drivetrain_status_writes_total") == 1
    assert value(metrics, "drivetrain_status_writes_held_total") == 1


def test_runs_by_phase_are_made_at_the_scrape(metrics: Metrics) -> None:
    """A run without a status is Pending; every phase is there, so that a 0 is one."""
    found = {phase.value: value(metrics, "drivetrain_runs", phase=phase.value) for phase in Phase}
    assert found == dict.fromkeys(map(str, Phase), 0) | {"Running": 3, "Pending": 3}


def test_gauges(metrics: Metrics) -> None:
    assert value(metrics, "drivetrain_queue_depth") == 4
    assert value(metrics, "drivetrain_queue_delayed") == 5
    assert value(metrics, "drivetrain_queue_oldest_seconds") == 1.5
    assert value(metrics, "drivetrain_work_oldest_seconds") == 0.25
    assert value(metrics, "drivetrain_events_dropped_total") == 6
    assert value(metrics, "drivetrain_watch_silence_seconds", resource="jobs") == 3.0


def test_a_standby_is_no_leader(metrics: Metrics) -> None:
    assert value(metrics, "drivetrain_leader") == 0
    metrics.lead(lambda: True)
    assert value(metrics, "drivetrain_leader") == 1


def test_the_process_is_described(metrics: Metrics) -> None:
    assert (value(metrics, "process_resident_memory_bytes") or 0) > 1e6


def families() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name, kind, labels and words of each of our metrics."""
    metrics = Metrics()
    metrics.watch(GAUGES)
    for collector in metrics.registry._collector_to_names:
        for family in collector.collect():
            if family.name.startswith("drivetrain_"):
                suffix = "_total" if family.type == "counter" else ""
                labels = getattr(collector, "_labelnames", None) or getattr(
                    family, "_labelnames", ()
                )
                yield f"{family.name}{suffix}", family.type, tuple(labels), family.documentation


def table() -> str:
    lines = ["| Metric | Kind | Labels | Meaning |", "|---|---|---|---|"]
    for name, kind, labels, words in sorted(families()):
        lines.append(f"| `{name}` | {kind} | {', '.join(f'`{x}`' for x in labels)} | {words} |")
    return "\n".join(lines) + "\n"


def test_no_label_can_hold_a_name() -> None:
    known = {"phase", "step", "reason", "verb", "resource", "code"}
    assert {label for _, _, labels, _ in families() for label in labels} == known


def test_the_page_lists_every_metric() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")
