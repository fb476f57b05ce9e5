"""The monitor over a clock and summaries of our own: starts, stalls, rates, restarts."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drivetrain_api.artifacts.soak import MonitorFailure, SoakFigures
from drivetrain_trainer.soak.monitor import Monitor
from drivetrain_trainer.soak.processor_time import NOTHING_USED, ProcessorTime
from drivetrain_trainer.soak.settings import MonitorSettings
from drivetrain_trainer.soak.summary import SummaryWatch

FIGURES = SoakFigures(
    processes=1, rss_bytes=1, pss_bytes=1, fds=1, threads=1, shm_bytes=0, gpu_bytes=None
)
SETTINGS = MonitorSettings(start_s=600.0, stale_s=120.0, duration_s=1000.0)


@dataclass
class Run:
    folder: Path
    now: float = 0.0
    document: dict[str, Any] = field(default_factory=dict)
    used: ProcessorTime = NOTHING_USED
    """What each sample finds that the run got of the processors."""

    def monitor(self, settings: MonitorSettings = SETTINGS) -> Monitor:
        watch = SummaryWatch(lambda: self.folder)
        return Monitor(
            settings, lambda: FIGURES, watch, clock=lambda: self.now, processor=lambda: self.used
        )

    def says(self, iteration: int, steps: int, wall: float, status: str = "running") -> None:
        self.write(
            json.dumps(
                {
                    "status": status,
                    "algo": "sac",
                    "completed_iterations": iteration,
                    "total_env_steps": steps,
                    "wall_time_sec": wall,
                }
            )
        )

    def write(self, text: str) -> None:
        temporary = self.folder / "new"
        temporary.write_text(text)
        temporary.replace(self.folder / "run_summary.json")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def at(run: Run, monitor: Monitor, seconds: float) -> None:
    run.now = seconds
    monitor.sample()


def test_a_run_must_tick_in_time(run: Run) -> None:
    monitor = run.monitor()
    run.says(0, 0, 1.0)
    at(run, monitor, 599.0)
    assert monitor.problem() is None
    at(run, monitor, 600.0)
    found = monitor.problem()
    assert found is not None
    assert (found.rule, found.classification) == ("start", MonitorFailure.STALE_TICK)
    assert "no tick within 600 s" in found.message


def test_what_a_resumed_run_begins_with_is_no_tick(run: Run) -> None:
    monitor = run.monitor()
    run.says(5000, 40_000, 1.0)
    at(run, monitor, 10.0)
    assert monitor.timing.first_tick is None
    run.says(5001, 40_008, 2.0)
    at(run, monitor, 12.0)
    assert monitor.timing.first_tick == 12.0


def test_a_summary_of_before_the_soak_is_not_read(run: Run) -> None:
    run.says(9, 90, 50.0, "completed")
    monitor = run.monitor()
    at(run, monitor, 5.0)
    assert monitor.watch.tick is None
    run.says(0, 0, 0.5)
    at(run, monitor, 10.0)
    run.says(1, 8, 1.5)
    at(run, monitor, 15.0)
    assert (monitor.restarts, monitor.timing.first_tick) == (0, 15.0)


def test_a_directory_found_late_may_hold_an_older_summary(run: Run) -> None:
    run.says(9, 90, 50.0, "completed")
    os.utime(run.folder / "run_summary.json", (1000.0, 1000.0))
    watch = SummaryWatch(lambda: run.folder if run.now > 0 else None, since=2000.0)
    run.now = 1.0
    watch.look()
    assert watch.document is None
    run.says(0, 0, 0.1)
    watch.look()
    assert watch.document is not None


def test_no_tick_for_too_long_is_a_stall_and_a_rewritten_summary_is_no_tick(run: Run) -> None:
    monitor = run.monitor()
    for second in (0, 10):
        run.says(second, second, float(second))
        at(run, monitor, float(second))
    for second in (60, 129):
        run.says(10, 10, float(second))
        at(run, monitor, float(second))
        assert monitor.problem() is None
    at(run, monitor, 130.0)
    found = monitor.problem()
    assert found is not None
    assert (found.rule, found.classification) == ("stall", MonitorFailure.STALE_TICK)
    assert found.message == "no tick for 120.0 s at iteration 10, 10 steps (limit 120 s)"


STARVED = ProcessorTime(2.5, 7.5)
"""Of ten seconds, by neighbours."""
IDLE = ProcessorTime(0.01, 0.05)


@pytest.mark.parametrize(("used", "ends"), [(STARVED, 490.0), (IDLE, 130.0)])
def test_a_run_that_waits_for_a_processor_stalls_later_and_one_that_hangs_does_not(
    run: Run, used: ProcessorTime, ends: float
) -> None:
    monitor = run.monitor()
    for second in (0, 10):
        run.says(second, second, float(second))
        at(run, monitor, float(second))
    run.used = used
    for second in range(20, 1000, 10):
        at(run, monitor, float(second))
        if (found := monitor.problem()) is not None:
            break
    assert found is not None
    assert found.rule == "stall"
    assert run.now == pytest.approx(ends, abs=10.0)
    assert ("waiting for a processor" in found.message) == (used is STARVED)


def test_what_a_run_waited_before_its_last_tick_excuses_nothing(run: Run) -> None:
    monitor = run.monitor()
    run.used = STARVED
    for second in range(0, 110, 10):
        run.says(second, second, float(second))
        at(run, monitor, float(second))
    run.used = IDLE
    for second in range(110, 220, 10):
        at(run, monitor, float(second))
        assert monitor.problem() is None
    at(run, monitor, 221.0)
    assert monitor.problem() is not None


def test_a_starved_start_has_longer_and_a_starved_end_as_well(run: Run) -> None:
    monitor = run.monitor()
    run.used = STARVED
    for second in range(10, 1000, 10):
        at(run, monitor, float(second))
        assert monitor.problem() is None
    for step in (1, 2):
        run.says(step, step, 990.0 + step)
        at(run, monitor, 990.0 + step)
    for second in range(1000, 2000, 10):
        at(run, monitor, float(second))
        assert monitor.overrun() is None
    for second in range(2000, 2400, 10):
        at(run, monitor, float(second))
        assert monitor.overrun() is None
    for second in range(2400, 2600, 10):
        at(run, monitor, float(second))
        monitor.overrun()
    assert monitor.overrun() is not None


def test_an_interval_longer_than_a_stall_is_waited_for_and_a_monitor_that_sees_nothing_is_not(
    run: Run,
) -> None:
    monitor = run.monitor(MonitorSettings(sample_s=300.0, stale_s=120.0))
    for second in (0, 300):
        run.says(second, second, float(second))
        at(run, monitor, float(second))
    run.now = 599.0
    assert monitor.problem() is None
    run.now = 901.0
    assert monitor.problem() is not None


def test_throughput_is_by_the_runs_own_clock(run: Run) -> None:
    monitor = run.monitor()
    run.says(1, 100, 10.0)
    at(run, monitor, 20.0)
    run.says(1, 100, 11.0)  # written again, no progress
    at(run, monitor, 25.0)
    run.says(2, 400, 13.0)
    at(run, monitor, 30.0)
    assert [sample.rate for sample in monitor.store.samples] == [None, None, 100.0]


def test_a_run_that_begins_again_is_counted(run: Run) -> None:
    monitor = run.monitor()
    for iteration, wall in ((1, 1.0), (5, 50.0), (3, 0.5), (6, 9.0)):
        run.says(iteration, 8 * iteration, wall)
        at(run, monitor, monitor.elapsed + 5)
    assert monitor.restarts == 1
    assert monitor.store.samples[2].rate is None


def test_a_run_that_goes_on_after_its_time_is_ended(run: Run) -> None:
    monitor = run.monitor()
    for second in (0, 10):
        run.says(second, second, float(second))
        at(run, monitor, float(second))
    at(run, monitor, 1129.0)
    assert monitor.overrun() is None
    at(run, monitor, 1130.0)
    found = monitor.overrun()
    assert found is not None
    assert found.rule == "overrun"


def test_ppo_is_refused_by_name(run: Run) -> None:
    monitor = run.monitor()
    run.write('{"algo": "ppo", "completed_iterations": 1, "total_env_steps": 8}')
    at(run, monitor, 1.0)
    assert monitor.unsoakable is not None
    assert monitor.unsoakable.startswith("ppo cannot be soaked")


HOSTILE = [
    "",
    "not json",
    "[]",
    "[" * 5000,
    '{"a": NaN}',
    '{"a": 1e999}',
    '{"a": "\\ud800"}',
    '{"' + "k" * 300 + '": 1}',
    '{"a": ' * 70 + "1" + "}" * 70,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_summary_is_torn_and_never_an_error(run: Run, text: str) -> None:
    monitor = run.monitor()
    run.write(text)
    at(run, monitor, 1.0)
    assert monitor.watch.torn_reads == 1
    assert monitor.watch.torn
    assert monitor.watch.document is None


def test_a_summary_that_cannot_be_read_for_a_moment_is_asked_for_again(run: Run) -> None:
    monitor = run.monitor()
    (run.folder / "run_summary.json").symlink_to("elsewhere")
    at(run, monitor, 1.0)
    assert (monitor.watch.torn is not None, monitor.watch.torn_reads) == (True, 0)
    run.says(1, 8, 1.0)
    at(run, monitor, 2.0)
    assert (monitor.watch.torn, monitor.watch.torn_reads) == (None, 0)


@pytest.mark.parametrize("steps", ["true", "-1", "1.5", '"9"', "null", "[1]"])
def test_counters_of_another_type_are_no_tick(run: Run, steps: str) -> None:
    monitor = run.monitor()
    run.write(f'{{"completed_iterations": 1, "total_env_steps": {steps}}}')
    at(run, monitor, 1.0)
    assert monitor.watch.tick is None
    assert monitor.watch.torn is None
