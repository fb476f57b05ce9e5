"""Which reports a diagnosis looks at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from drivetrain_trainer.analysis.runs import Series
from drivetrain_trainer.analysis.window import EmptyRunError, Span, window_of


def series(values: Sequence[float], *, every: float = 2.0) -> Series:
    count = len(values)
    return Series(
        np.arange(1, count + 1, dtype=np.int64) * 10,
        1000.0 + every * np.arange(count),
        np.array(values, dtype=np.float64),
    )


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("30s", Span(seconds=30.0)),
        ("1.5m", Span(seconds=90.0)),
        (" 2H ", Span(seconds=7200.0)),
        ("200", Span(reports=200)),
        ("1 report", Span(reports=1)),
        ("12 reports", Span(reports=12)),
    ],
)
def test_spans(text: str, span: Span) -> None:
    assert Span.parse(text) == span


@pytest.mark.parametrize("text", ["", "0", "0s", "-5s", "1.5", "soon", "5 d", "nan s", "1e3"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no span: give seconds"):
        Span.parse(text)


def test_means_over_the_last_seconds() -> None:
    window = window_of(
        {
            "Perf/iteration_time": series([9.0] * 4 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            "Perf/learning_time": series([1.0] * 10),
        },
        Span(seconds=10.0),
    )
    assert window.means["Perf/iteration_time"] == pytest.approx(3.5)
    assert window.latest["Perf/iteration_time"] == 6.0
    assert (window.reports, window.seconds, window.env_steps) == (6, 10.0, 50)
    assert (window.ended, window.gap) == (1018.0, 2.0)


@pytest.mark.parametrize(
    ("span", "reports"),
    [
        (Span(seconds=1.0), 5),
        (Span(seconds=1e6), 8),
        (Span(reports=3), 3),
        (Span(reports=99), 8),
    ],
    ids=["few reports", "all of them", "by number", "more than there are"],
)
def test_how_many_reports_are_looked_at(span: Span, reports: int) -> None:
    assert window_of({"Perf/iteration_time": series([1.0] * 8)}, span).reports == reports


def test_warm_up_is_left_out_with_the_report_that_holds_its_end() -> None:
    window = window_of(
        {
            "Perf/iteration_time": series([1.0, 1.0, 2.0, 5.0, 7.0]),
            "Perf/learning_time": series([0.0, 0.0, 1.0, 4.0, 6.0]),
            "Perf/total_fps": series([900.0, 900.0, 400.0, 10.0, 20.0]),
        },
        Span(reports=5),
    )
    assert (window.reports, window.warm_up, window.only_warm_up) == (2, 3, False)
    assert window.means["Perf/total_fps"] == 15.0
    assert window.means["Perf/iteration_time"] == 6.0


def test_warm_up_after_a_restart_is_left_out_too() -> None:
    learning = [3.0, 3.0, 0.0, 3.0, 3.0]
    window = window_of(
        {"Perf/iteration_time": series([4.0] * 5), "Perf/learning_time": series(learning)},
        Span(reports=5),
    )
    assert (window.reports, window.warm_up) == (3, 2)


def test_nothing_but_warm_up_is_looked_at_and_told() -> None:
    window = window_of(
        {"Perf/iteration_time": series([1.0, 3.0]), "Perf/learning_time": series([0.0, 0.0])},
        Span(reports=5),
    )
    assert window.only_warm_up
    assert (window.reports, window.warm_up) == (2, 0)
    assert window.means["Perf/iteration_time"] == 2.0


def test_counts_that_began_anew_grow_by_what_they_grew() -> None:
    tag = "Train/replay_ingress_backpressure_wait_ms"
    window = window_of(
        {"Perf/iteration_time": series([1.0] * 4), tag: series([10.0, 16.0, 1.0, 5.0])},
        Span(reports=4),
    )
    assert window.growth[tag] == 10.0


def test_values_that_are_not_finite_are_counted_and_spoil_no_mean() -> None:
    window = window_of(
        {
            "Perf/iteration_time": series([1.0] * 4),
            "Loss/actor": series([1.0, np.nan, 3.0, np.inf]),
            "Loss/critic": series([np.nan] * 4),
        },
        Span(reports=4),
    )
    assert window.nonfinite == {"Loss/actor": 2, "Loss/critic": 4}
    assert window.means["Loss/actor"] == 2.0
    assert "Loss/critic" not in window.means


def test_a_run_that_never_measured_an_iteration_is_seen_by_what_it_reports() -> None:
    window = window_of({"Train/mean_reward": series([1.0, 2.0, 3.0])}, Span(reports=2))
    assert window.means == {"Train/mean_reward": 2.5}


@pytest.mark.parametrize("found", [{}, {"Perf/iteration_time": series([])}])
def test_an_empty_run_is_refused(found: dict[str, Series]) -> None:
    with pytest.raises(EmptyRunError, match="reported nothing yet"):
        window_of(found, Span(reports=3))
