from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from drivetrain_trainer import stats
from drivetrain_trainer.stats import (
    ReduceType,
    ReduceTypeConflictError,
    StatsError,
    StatsTracker,
    UnknownDenominatorError,
    window,
)

NAN, INF = math.nan, math.inf
Record = Callable[..., None]


@pytest.fixture
def tracker() -> StatsTracker:
    return StatsTracker()


@pytest.fixture(params=["stat", "stat_compact"])
def record(request: pytest.FixtureRequest, tracker: StatsTracker) -> Record:
    method: Record = getattr(tracker, request.param)
    return method


def test_scalars_are_means_with_their_counts(tracker: StatsTracker) -> None:
    tracker.scalar(lr=0.001, eps=0.2)
    tracker.scalar(lr=0.003)
    assert tracker.export() == {"lr": 0.002, "lr__count": 2.0, "eps": 0.2, "eps__count": 1.0}


def test_an_export_begins_anew(tracker: StatsTracker) -> None:
    tracker.scalar(lr=1.0)
    tracker.export()
    assert tracker.export() == {}
    tracker.scalar(lr=3.0)
    assert tracker.export() == {"lr": 3.0, "lr__count": 1.0}


@pytest.mark.parametrize(
    ("reduce_type", "expected"),
    [
        (ReduceType.AVG_MIN_MAX, {"loss/avg": 3.0, "loss/min": 1.0, "loss/max": 7.0}),
        (ReduceType.AVG, {"loss": 3.0}),
        (ReduceType.SUM, {"loss": 9.0}),
        (ReduceType.MIN, {"loss": 1.0}),
        (ReduceType.MAX, {"loss": 7.0}),
    ],
)
def test_reduce_types(
    tracker: StatsTracker, record: Record, reduce_type: ReduceType, expected: dict[str, float]
) -> None:
    # Valid over both batches: 1, 7 and 1: each element weighs the same, not each batch.
    tracker.denominator(valid=torch.tensor([[True, False], [True, False]]))
    record("valid", reduce_type, loss=torch.tensor([[1.0, 100.0], [7.0, -100.0]]))
    tracker.denominator(valid=torch.tensor([False, True]))
    record("valid", reduce_type, loss=torch.tensor([50.0, 1.0]))
    assert tracker.export() == expected | {"valid": 3.0}


def test_the_default_of_a_stat_is_mean_least_and_greatest(
    tracker: StatsTracker, record: Record
) -> None:
    tracker.denominator(valid=torch.ones(2, dtype=torch.bool))
    record(denominator="valid", loss=torch.tensor([0.1, 0.9], dtype=torch.float64))
    assert tracker.export() == {"loss/avg": 0.5, "loss/min": 0.1, "loss/max": 0.9, "valid": 2.0}


@pytest.mark.parametrize(
    ("values", "mask", "expected"),
    [
        ([NAN, 2.0], [False, True], {"x/avg": 2.0, "x/min": 2.0, "x/max": 2.0}),
        ([NAN, 2.0], [True, True], {"x/avg": NAN, "x/min": NAN, "x/max": NAN}),
        ([NAN, 2.0], [False, False], {}),
        ([INF, 2.0], [True, True], {"x/avg": INF, "x/min": 2.0, "x/max": INF}),
        ([INF, -INF], [True, True], {"x/avg": NAN, "x/min": -INF, "x/max": INF}),
        ([INF, 2.0], [False, True], {"x/avg": 2.0, "x/min": 2.0, "x/max": 2.0}),
        ([], [], {}),
    ],
)
def test_nan_infinities_and_nothing(
    tracker: StatsTracker,
    record: Record,
    values: list[float],
    mask: list[bool],
    expected: dict[str, float],
) -> None:
    tracker.denominator(n=torch.tensor(mask, dtype=torch.bool))
    record("n", x=torch.tensor(values))
    assert tracker.export() == pytest.approx(expected | {"n": float(sum(mask))}, nan_ok=True)


def test_without_a_valid_element_sums_and_counts_are_zero_and_the_rest_is_left_out(
    tracker: StatsTracker, record: Record
) -> None:
    tracker.denominator(n=torch.zeros(3, dtype=torch.bool))
    for reduce_type in (ReduceType.AVG, ReduceType.SUM, ReduceType.MIN, ReduceType.MAX):
        record("n", reduce_type, **{reduce_type.value: torch.ones(3)})
    assert tracker.export() == {"n": 0.0, "sum": 0.0}


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool]
)
def test_every_real_dtype(tracker: StatsTracker, record: Record, dtype: torch.dtype) -> None:
    tracker.denominator(n=torch.tensor([True, True, False]))
    record("n", x=torch.tensor([1, 0, 1]).to(dtype))
    assert tracker.export() == {"n": 2.0, "x/avg": 0.5, "x/min": 0.0, "x/max": 1.0}


def test_sums_are_float64(tracker: StatsTracker, record: Record) -> None:
    # In float32 2^24 + 1 is 2^24.
    tracker.denominator(n=torch.ones(2, dtype=torch.bool))
    for _ in range(3):
        record("n", ReduceType.SUM, x=torch.tensor([2.0**24, 1.0]))
    record("n", ReduceType.MAX, big=torch.tensor([2**53 - 1, 0]))
    assert tracker.export() == {"n": 2.0, "x": 3 * (2.0**24 + 1), "big": 2.0**53 - 1}


def test_what_was_recorded_may_be_overwritten_afterwards(
    tracker: StatsTracker, record: Record
) -> None:
    value, mask = torch.tensor([1.0, 2.0]), torch.tensor([True, False])
    tracker.denominator(n=mask)
    record("n", ReduceType.SUM, x=value)
    value.fill_(NAN)
    mask.fill_(True)
    assert tracker.export() == {"n": 1.0, "x": 1.0}


def test_a_batch_with_a_gradient_is_recorded_without_its_graph(
    tracker: StatsTracker, record: Record
) -> None:
    tracker.denominator(n=torch.ones(1, dtype=torch.bool))
    record("n", ReduceType.SUM, x=torch.ones(1, requires_grad=True) * 2)
    tracker.scalar(loss=torch.tensor(3.0, requires_grad=True))
    assert tracker.export() == {"n": 1.0, "x": 2.0, "loss": 3.0, "loss__count": 1.0}


def test_tensors_of_one_element_are_scalars_too(tracker: StatsTracker) -> None:
    tracker.scalar(norm=torch.tensor(1.0))
    tracker.scalar(norm=torch.tensor([[2.0]]))
    tracker.scalar(norm=6)
    assert tracker.export() == {"norm": 3.0, "norm__count": 3.0}


def test_a_scalar_that_is_nan_makes_its_mean_nan(tracker: StatsTracker) -> None:
    tracker.scalar(x=NAN)
    tracker.scalar(x=1.0)
    exported = tracker.export()
    assert math.isnan(exported["x"])
    assert exported["x__count"] == 2.0


def test_scopes_nest_and_join_by_slashes(tracker: StatsTracker, record: Record) -> None:
    tracker.denominator(valid=torch.tensor([True]))
    with tracker.scope("ppo_actor"):
        with tracker.scope("update"):
            record(loss=torch.tensor([2.0]), denominator="valid")
        tracker.scalar(a=1.0)
    tracker.scalar(b=1.0)
    assert set(tracker.export()) == {
        "valid",
        "ppo_actor/update/loss/avg",
        "ppo_actor/update/loss/min",
        "ppo_actor/update/loss/max",
        "ppo_actor/a",
        "ppo_actor/a__count",
        "b",
        "b__count",
    }


def test_a_scope_ends_with_its_block_also_when_that_raises(tracker: StatsTracker) -> None:
    with pytest.raises(RuntimeError), tracker.scope("x"):
        raise RuntimeError
    tracker.scalar(a=1.0)
    assert set(tracker.export()) == {"a", "a__count"}


def test_the_nearest_denominator_of_a_name_is_meant(tracker: StatsTracker, record: Record) -> None:
    tracker.denominator(n=torch.tensor([True, True]))
    with tracker.scope("outer"):
        record("n", ReduceType.SUM, far=torch.ones(2))
        tracker.denominator(n=torch.tensor([True, False]))
        with tracker.scope("inner"):
            record("n", ReduceType.SUM, near=torch.ones(2))
    assert tracker.export() == {"n": 2.0, "outer/far": 2.0, "outer/n": 1.0, "outer/inner/near": 1.0}


def test_a_stat_before_its_denominator_is_refused_by_name(
    tracker: StatsTracker, record: Record
) -> None:
    tracker.denominator(other=torch.tensor([True]))
    with tracker.scope("a"), pytest.raises(UnknownDenominatorError) as caught:
        record("n", loss=torch.ones(1))
    assert str(caught.value) == (
        "denominator 'a/n' of 'a/loss' is not recorded; call denominator(...) before the stat "
        "(recorded: other)"
    )
    tracker.denominator(n=torch.tensor([True]))
    tracker.export()
    with pytest.raises(UnknownDenominatorError):  # an export forgets denominators too
        record("n", loss=torch.ones(1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.stat("n", x=torch.ones(3)), r"stat 'x' has shape \(3,\).*'n' \(2,\)"),
        (lambda t: t.stat("n", x=torch.ones(2, 1)), r"stat 'x' has shape \(2, 1\)"),
        (lambda t: t.stat("n", x=torch.ones(2, device="meta")), "stat 'x' is on meta"),
        (lambda t: t.stat("n", x=[1.0, 2.0]), "stat 'x' is list; it must be a real tensor"),
        (lambda t: t.stat("n", x=torch.ones(2, dtype=torch.complex64)), "must be a real tensor"),
        (lambda t: t.stat("n", ReduceType.SCALAR, x=torch.ones(2)), "'x'.*SCALAR"),
        (lambda t: t.denominator(m=torch.ones(2)), "denominator 'm' is torch.float32"),
        (lambda t: t.denominator(m=[True]), "denominator 'm' is list"),
        (lambda t: t.scalar(x=torch.ones(2)), r"scalar 'x' is a tensor of shape \(2,\)"),
        (lambda t: t.scalar(x="1"), "scalar 'x' is '1' \\(str\\), not a number"),
        (lambda t: t.scalar(**{"x/": 1.0}), "'x/' is no name"),
        (lambda t: t.scalar(x__count=1.0), "'x__count' is no name of a stat"),
        (lambda t: t.scope("").__enter__(), "'' is no name of a scope"),
        (lambda t: t.record_timing("/x").__enter__(), "'/x' is no name"),
    ],
)
def test_what_cannot_be_recorded_is_refused_by_name(
    tracker: StatsTracker, call: Callable[[StatsTracker], Any], message: str
) -> None:
    tracker.denominator(n=torch.ones(2, dtype=torch.bool))
    with pytest.raises(StatsError, match=message):
        call(tracker)
    assert tracker.export() == {"n": 2.0}


def test_one_key_has_one_reduce_type_between_two_exports(
    tracker: StatsTracker, record: Record
) -> None:
    tracker.denominator(n=torch.ones(1, dtype=torch.bool))
    record("n", ReduceType.SUM, x=torch.ones(1))
    with pytest.raises(ReduceTypeConflictError, match="'x' is recorded as MAX, but as SUM before"):
        record("n", ReduceType.MAX, x=torch.ones(1))
    with pytest.raises(ReduceTypeConflictError, match="'x' is recorded as SCALAR"):
        tracker.scalar(x=1.0)
    tracker.export()
    tracker.scalar(x=1.0)
    assert tracker.export() == {"x": 1.0, "x__count": 1.0}


def test_two_keys_never_share_an_output(tracker: StatsTracker, record: Record) -> None:
    tracker.denominator(n=torch.ones(1, dtype=torch.bool))
    record("n", x=torch.ones(1))
    with pytest.raises(ReduceTypeConflictError, match=r"'x' and 'x/avg' .* exported as 'x/avg'"):
        tracker.scalar(**{"x/avg": 1.0})


def test_timings_stand_under_timeperf_whatever_the_scope(tracker: StatsTracker) -> None:
    with tracker.scope("a"), tracker.record_timing("rollout"):
        time.sleep(0.002)
    with pytest.raises(RuntimeError), tracker.record_timing("rollout"):
        raise RuntimeError
    with StatsTracker("named").record_timing("x"):
        pass
    exported = tracker.export()
    assert set(exported) == {"timeperf/rollout", "timeperf/rollout__count"}
    assert exported["timeperf/rollout__count"] == 2.0
    assert 0.001 <= exported["timeperf/rollout"] < 5.0


def test_named_trackers_are_isolated_and_their_name_is_the_root() -> None:
    stats.scalar(grad_norm=1.5)
    with stats.scope("training"):
        stats.get("rollout").scalar(reward=0.8)
        with stats.get("rollout").scope("inner"), stats.get("rollout").record_timing("step"):
            stats.get("rollout").scalar(turns=2)
            stats.scalar(lr=1.0)
    stats.get("eval-rollout").scalar(reward=0.9)
    assert stats.get("rollout") is stats.get("rollout")
    assert stats.get("rollout").export().keys() == {
        "rollout/reward",
        "rollout/reward__count",
        "rollout/inner/turns",
        "rollout/inner/turns__count",
        "timeperf/rollout/step",
        "timeperf/rollout/step__count",
    }
    assert stats.export() == {
        "grad_norm": 1.5,
        "grad_norm__count": 1.0,
        "training/lr": 1.0,
        "training/lr__count": 1.0,
    }
    assert stats.export_all() == {"eval-rollout/reward": 0.9, "eval-rollout/reward__count": 1.0}


def test_export_all_takes_every_tracker_and_begins_anew() -> None:
    stats.scalar(a=1.0)
    stats.get("rollout").scalar(a=2.0)
    assert stats.export_all() == {
        "a": 1.0,
        "a__count": 1.0,
        "rollout/a": 2.0,
        "rollout/a__count": 1.0,
    }
    assert stats.export_all() == {}


def test_two_trackers_with_one_key_are_refused() -> None:
    stats.get("rollout").scalar(a=1.0)
    with stats.scope("rollout"):
        stats.scalar(a=2.0)
    with pytest.raises(ReduceTypeConflictError, match="two trackers hold 'rollout/a'"):
        stats.export_all()


def test_the_default_tracker_has_functions_of_its_own() -> None:
    stats.denominator(n=torch.tensor([True, False]))
    stats.stat("n", ReduceType.SUM, x=torch.tensor([2.0, 5.0]))
    stats.stat_compact("n", ReduceType.SUM, y=torch.tensor([3.0, 5.0]))
    with stats.record_timing("x"):
        pass
    exported = stats.get().export()
    assert {key: exported[key] for key in ("n", "x", "y", "timeperf/x__count")} == {
        "n": 1.0,
        "x": 2.0,
        "y": 3.0,
        "timeperf/x__count": 1.0,
    }


def test_scalars_and_compact_batches_take_bounded_memory(tracker: StatsTracker) -> None:
    mask = torch.ones(8, dtype=torch.bool)
    for step in range(3000):
        tracker.denominator(n=mask)
        tracker.stat_compact("n", x=torch.full((8,), float(step)))
        for _ in range(4):
            tracker.scalar(s=float(step))
    entries = tracker.drain()
    assert sum(len(batches) for batches in entries["x"].compact.values()) <= 256
    assert len(entries["s"].scalars) <= 4096
    assert entries["x"].full == []


def test_folding_changes_no_figure(tracker: StatsTracker) -> None:
    tracker.denominator(n=torch.tensor([True, True]))
    for step in range(1000):
        tracker.stat_compact("n", x=torch.tensor([float(step), -float(step)]))
        for _ in range(10):
            tracker.scalar(s=float(step))
    exported = tracker.export()
    assert exported == {
        "n": 2.0,
        "x/avg": 0.0,
        "x/min": -999.0,
        "x/max": 999.0,
        "s": 499.5,
        "s__count": 10_000.0,
    }


def test_a_compact_batch_keeps_four_float64_scalars(tracker: StatsTracker) -> None:
    tracker.denominator(n=torch.tensor([True, False, True]))
    tracker.stat_compact("n", x=torch.tensor([1.0, 7.0, 4.0]))
    ((figures,),) = tracker.drain()["x"].compact.values()
    assert figures.dtype is torch.float64
    assert figures.untyped_storage().nbytes() == 4 * 8
    assert figures.tolist() == [5.0, 2.0, 1.0, 4.0]


WAITS = ("item", "cpu", "tolist", "numpy", "__bool__", "__float__", "__int__", "nonzero", "to")


def test_recording_never_waits_for_a_device(
    tracker: StatsTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, mask = torch.rand(4, 3), torch.rand(4, 3) > 0.5
    ints, loss = torch.arange(12).reshape(4, 3), torch.tensor(2.0)
    guard = _Guard(monkeypatch)
    with guard:
        for _ in range(600):  # beyond every fold
            tracker.denominator(valid=mask)
            tracker.stat("valid", full=value)
            tracker.stat_compact("valid", compact=value, ints=ints)
            tracker.scalar(loss=loss)
            with tracker.record_timing("x"), tracker.scope("a"):
                pass
    assert guard.calls == []
    assert tracker.export()["loss"] == 2.0
    assert "cpu" in guard.calls  # the guard does see what an export fetches


class _Guard:
    """Notes every call that would read an element on the host, and refuses it while entered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self._armed = False
        for name in WAITS:
            monkeypatch.setattr(Tensor, name, self._noting(name, getattr(Tensor, name)))

    def _noting(self, name: str, method: Any) -> Any:
        def noted(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            to_dtype = name == "to" and all(isinstance(arg, torch.dtype) for arg in args)
            if not to_dtype:
                self.calls.append(name)
                assert not self._armed, f"Tensor.{name} waits for the device"
            return method(tensor, *args, **kwargs)

        return noted

    def __enter__(self) -> None:
        self._armed = True

    def __exit__(self, *_: object) -> None:
        self._armed = False


def test_recording_never_looks_at_an_element() -> None:
    # A meta tensor has shapes and no elements: any look at one raises.
    tracker = StatsTracker()
    with torch.device("meta"):
        tracker.denominator(n=torch.ones(3, dtype=torch.bool))
        tracker.stat("n", x=torch.ones(3))
        for _ in range(300):
            tracker.stat_compact("n", y=torch.ones(3))
        tracker.scalar(z=torch.ones(1))


def test_an_export_fetches_once_a_device_however_many_keys(
    tracker: StatsTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker.denominator(n=torch.ones(2, dtype=torch.bool))
    for key in range(100):
        tracker.stat("n", **{f"full{key}": torch.ones(2)})
        tracker.stat_compact("n", **{f"compact{key}": torch.ones(2)})
        tracker.scalar(**{f"scalar{key}": torch.ones(1)})
    awaited: list[torch.device] = []
    monkeypatch.setattr(window, "_await", awaited.append)
    guard = _Guard(monkeypatch)
    tracker.export()
    assert sorted(guard.calls) == ["cpu", "tolist"]
    assert awaited == [torch.device("cpu")]
