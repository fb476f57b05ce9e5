from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drivetrain_trainer.telemetry.backends.base import BackendContext
from drivetrain_trainer.telemetry.backends.jsonl import FILE_NAME, JsonlBackend, make
from drivetrain_trainer.telemetry.record import Record, Table

MakeRecord = Callable[..., Record]


def write(context: BackendContext, *records: Record) -> JsonlBackend:
    backend = make(context)
    backend.open()
    for record in records:
        backend.write(record)
    return backend


def lines(context: BackendContext) -> list[dict[str, Any]]:
    text = (context.directory / FILE_NAME).read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [json.loads(line, parse_constant=_no_constant) for line in text.splitlines()]


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def test_a_header_comes_first_and_then_an_object_a_report(
    context: BackendContext, make_record: MakeRecord
) -> None:
    write(context, make_record(640, Loss__actor=-1.5), make_record(1280, Loss__actor=2.0)).close()
    header, first, second = lines(context)
    assert header == {
        "metric_schema_version": 1,
        "attempt": 1,
        "start_env_steps": 0,
        "run": "2026-03-09_18-30-00_mujoco",
        "algo": "sac",
        "task": "half_cheetah",
    }
    assert first == {
        "step": 640,
        "iteration": 10,
        "wall_time": 1_700_000_000.0,
        "values": {"Loss/actor": -1.5},
    }
    assert (second["step"], second["values"]) == (1280, {"Loss/actor": 2.0})


def test_values_that_json_lacks_are_words_that_number_parsers_take(
    context: BackendContext, make_record: MakeRecord
) -> None:
    record = make_record(1, a=math.nan, b=math.inf, c=-math.inf, d=1e-320)
    write(context, record).close()
    values = lines(context)[1]["values"]
    assert values == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1e-320}
    assert math.isnan(float(values["a"]))
    assert [float(values[name]) for name in "bc"] == [math.inf, -math.inf]


def test_every_value_comes_back_to_the_bit(
    context: BackendContext, make_record: MakeRecord, report: dict[str, float]
) -> None:
    thirds = {tag: value / 3 for tag, value in report.items()}
    write(context, replace(make_record(1), values=thirds)).close()
    assert lines(context)[1]["values"] == thirds


def test_tables_stand_beside_the_values(context: BackendContext, make_record: MakeRecord) -> None:
    table = Table(("layer", "tokens"), ((0, math.inf), (1, 2.5)), index=("layer",))
    write(context, replace(make_record(1), tables={"moe_balance/loads": table})).close()
    assert lines(context)[1]["tables"] == {
        "moe_balance/loads": {"columns": ["layer", "tokens"], "rows": [[0, "Infinity"], [1, 2.5]]}
    }


def test_a_later_attempt_goes_on_after_a_line_that_was_cut(
    context: BackendContext, make_record: MakeRecord
) -> None:
    write(context, make_record(100), make_record(200)).close()
    path: Path = context.directory / FILE_NAME
    path.write_bytes(path.read_bytes()[:-20])
    write(replace(context, attempt=2, start_env_steps=100), make_record(150)).close()
    header, first, cut, second_header, second = path.read_text().splitlines()
    with pytest.raises(ValueError, match=r"."):
        json.loads(cut)
    assert [json.loads(line).get("step") for line in (header, first, second)] == [None, 100, 150]
    assert json.loads(second_header)["start_env_steps"] == 100


def test_each_line_is_there_as_soon_as_it_is_written(
    context: BackendContext, make_record: MakeRecord
) -> None:
    backend = write(context, make_record(100))
    assert [line.get("step") for line in lines(context)] == [None, 100]
    backend.close()
