"""What Prometheus sees: counters and histograms as things happen, gauges at the scrape.

No label holds a name of a run, a pod or a namespace: the number of series is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from drivetrain_api.status import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client import Metric

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


@dataclass(frozen=True)
class Gauges:
    """What is read when a scrape comes, and gone with what it was read from."""

    phases: Callable[[], Mapping[str, int]]
    """Runs by phase; the empty one is for those without a status yet."""
    queue_depth: Callable[[], int]
    """Runs that are due and wait for a worker."""
    queue_delayed: Callable[[], int]
    """Runs that wait for a later moment."""
    oldest_wait: Callable[[], float]
    """Seconds that the run due for longest has waited."""
    oldest_work: Callable[[], float]
    """Seconds that a worker has held a run, the longest."""
    watches: Callable[[], Iterable[tuple[str, float]]]
    """Resource and seconds of silence of each watch, the most silent one of each resource."""
    events_dropped: Callable[[], int]
    """Events about runs that were not written so far."""


class Metrics:
    """The operator's metrics, in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's
        self.registry = CollectorRegistry()
        self._reconcile = Histogram(
            "drivetrain_reconcile_seconds",
            "Seconds of a pass over a run, by the run's phase and by step (decide, apply).",
            ("phase", "step"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._failures = Counter(
            "drivetrain_reconcile_failures",
            "Passes that failed and are tried again, by what the API server said.",
            ("reason",),
            registry=self.registry,
        )
        self._restarts = Counter(
            "drivetrain_restarts",
            "Attempts that ended and are followed by another, by the reason of the end.",
            ("reason",),
            registry=self.registry,
        )
        self._statuses = Counter(
            "drivetrain_status_writes",
            "Statuses that were written.",
            registry=self.registry,
        )
        self._held = Counter(
            "drivetrain_status_writes_held",
            "Passes whose newer figures were held back for the progress interval.",
            registry=self.registry,
        )
        self._calls = Counter(
            "drivetrain_api_requests",
            "Requests to the API server, by verb, resource and status code.",
            ("verb", "resource", "code"),
            registry=self.registry,
        )
        self._call_seconds = Histogram(
            "drivetrain_api_request_seconds",
            "Seconds of a request to the API server, watches left out.",
            ("verb",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._leader = Gauge(
            "drivetrain_leader", "1 where this replica works.", registry=self.registry
        )
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def watch(self, gauges: Gauges) -> None:
        """Read these at every scrape from now on."""
        self.registry.register(_AtScrape(gauges))

    def lead(self, leading: Callable[[], bool]) -> None:
        """Tell by this whether the replica works."""
        self._leader.set_function(leading)

    def called(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """A request to the API server came to its end."""
        self._calls.labels(verb, resource, code).inc()
        if verb != "watch":
            self._call_seconds.labels(verb).observe(seconds)

    def passed(self, phase: Phase | None, step: str, seconds: float) -> None:
        """A step of a pass took that long."""
        self._reconcile.labels((phase or Phase.PENDING).value, step).observe(seconds)

    def failed(self, reason: str) -> None:
        """A pass failed."""
        self._failures.labels(reason).inc()

    def wrote(self) -> None:
        """A status was written."""
        self._statuses.inc()

    def restarted(self, reason: str, times: int) -> None:
        """Attempts ended and are followed by another."""
        self._restarts.labels(reason).inc(times)

    def held(self) -> None:
        """Newer figures wait."""
        self._held.inc()

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)


class _AtScrape(Collector):
    """Makes the gauges when they are asked for: what is gone leaves no series behind."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def describe(self) -> list[Metric]:
        """Nothing: the registry would ask for all gauges to learn their names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The gauges as they stand."""
        tally = dict(self._gauges.phases())
        fresh = tally.pop("", 0)
        runs = GaugeMetricFamily("drivetrain_runs", "TrainingRuns by phase.", labels=("phase",))
        for phase in Phase:
            pending = fresh if phase is Phase.PENDING else 0
            runs.add_metric([phase.value], tally.get(phase.value, 0) + pending)
        yield runs
        silence = GaugeMetricFamily(
            "drivetrain_watch_silence_seconds",
            "Seconds since a watch was heard, of the most silent namespace; for trainingruns,"
            " since an event was due.",
            labels=("resource",),
        )
        for resource, seconds in self._gauges.watches():
            silence.add_metric([resource], seconds)
        yield silence
        yield CounterMetricFamily(
            "drivetrain_events_dropped",
            "Events about runs that were not written: refused, or too many.",
            value=self._gauges.events_dropped(),
        )
        for name, words, value in (
            ("queue_depth", "Runs that are due and wait for a worker.", self._gauges.queue_depth()),
            ("queue_delayed", "Runs that wait for a later moment.", self._gauges.queue_delayed()),
            (
                "queue_oldest_seconds",
                "Seconds that a run has waited for a worker, the longest.",
                self._gauges.oldest_wait(),
            ),
            (
                "work_oldest_seconds",
                "Seconds that a pass has lasted, the longest in work.",
                self._gauges.oldest_work(),
            ),
        ):
            yield GaugeMetricFamily(f"drivetrain_{name}", words, value=value)
