"""The two files as models: their shape, historical files, and what is refused."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest
from pydantic import ValidationError

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.timings.hardware import CpuFacts, HardwareRecord
from drivetrain_api.timings.model import HardwareSidecar, Stage, StageRun, Timings

RECORD = HardwareRecord(cpu=CpuFacts(logical_threads=2))


def test_timings_is_a_plain_mapping_from_stage_to_total_and_runs() -> None:
    runs = (
        StageRun(seconds=1.25, hardware_id="hw-a", run_idx=0, label="seed 7", invocation="i1"),
        StageRun(seconds=2.5, hardware_id="hw-a", run_idx=1),
    )
    text = Timings({"sac_train": Stage.of(runs)}).to_json()
    assert text == textwrap.dedent(
        """\
        {
          "sac_train": {
            "total_seconds": 3.75,
            "runs": [
              {
                "seconds": 1.25,
                "hardware_id": "hw-a",
                "run_idx": 0,
                "label": "seed 7",
                "invocation": "i1"
              },
              {
                "seconds": 2.5,
                "hardware_id": "hw-a",
                "run_idx": 1
              }
            ]
          }
        }
        """
    )
    assert Timings.from_json(text).root["sac_train"].runs == runs


def test_the_hardware_file_has_a_version_and_each_description_once() -> None:
    sidecar = HardwareSidecar(hardware={RECORD.hardware_id: RECORD})
    assert json.loads(sidecar.to_json()) == {
        "schema_version": 1,
        "hardware": {RECORD.hardware_id: {"cpu": {"logical_threads": 2}, "gpus": [], "jobs": []}},
    }
    assert HardwareSidecar.from_json(sidecar.to_json()) == sidecar


@pytest.mark.parametrize("seconds", [-0.001, float("nan"), float("inf"), "1", True])
def test_seconds_are_finite_and_never_negative(seconds: Any) -> None:
    with pytest.raises(ValidationError):
        StageRun(seconds=seconds)


@pytest.mark.parametrize("field", [{"run_idx": -1}, {"run_idx": True}, {"label": ""}])
def test_other_values_that_cannot_be(field: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StageRun(seconds=1, **field)


RUN = {"seconds": 3.0, "run_idx": 0}


@pytest.mark.parametrize(
    ("content", "sizes"),
    [
        pytest.param(
            {
                "sac_train": {
                    "total_seconds": 3.0,
                    "runs": [{**RUN, "system_ram_gb": 62.8, "gpu_ram_gb": 23.6}],
                }
            },
            (62.8, 23.6),
            id="in the run",
        ),
        pytest.param(
            {"sac_train": {"total_seconds": 3.0, "runs": [RUN], "system_ram_gb": 16}},
            (16.0, None),
            id="in the stage",
        ),
        pytest.param(
            {
                "system_ram_gb": 62.8,
                "gpu_ram_gb": None,
                "sac_train": {"total_seconds": 3.0, "runs": [RUN], "gpu_ram_gb": 8},
            },
            (62.8, 8.0),
            id="in the file",
        ),
        pytest.param(
            {
                "system_ram_gb": 1.0,
                "sac_train": {"total_seconds": 3.0, "runs": [{**RUN, "system_ram_gb": 2.0}]},
            },
            (2.0, None),
            id="the nearest counts",
        ),
    ],
)
def test_embedded_memory_sizes_are_read_as_the_runs_own(
    content: dict[str, Any], sizes: tuple[float | None, float | None]
) -> None:
    timings = Timings.from_json(json.dumps(content))
    assert list(timings.root) == ["sac_train"]
    (run,) = timings.root["sac_train"].runs
    assert (run.system_ram_gb, run.gpu_ram_gb) == sizes
    assert run.legacy
    assert run.hardware_id is None
    assert Timings.from_json(timings.to_json()) == timings


def test_a_files_size_is_not_a_later_runs_that_names_its_hardware() -> None:
    runs = [RUN, {"seconds": 1.0, "run_idx": 1, "hardware_id": "hw-a"}]
    content = {"system_ram_gb": 8, "sac_train": {"total_seconds": 4.0, "runs": runs}}
    old, new = Timings.from_json(json.dumps(content)).root["sac_train"].runs
    assert (old.legacy, new.legacy) == (True, False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "torn, or no JSON"),
        ('{"sac_train": {"total_seconds": 3.0, "ru', "torn, or no JSON"),
        ("[" * 100_000, "torn, or no JSON"),
        ("[]", "a JSON list, no object"),
        ("null", "a JSON NoneType, no object"),
        ('{"algo": "sac"}', "algo"),
        ('{"a": {"runs": []}}', "a.total_seconds: Field required"),
        ('{"a": {"total_seconds": 1.0, "runs": [{"run_idx": 0}]}}', "a.runs.0.seconds"),
        ('{"a": {"total_seconds": -1.0, "runs": []}}', "a.total_seconds"),
        ('{"a": {"total_seconds": NaN, "runs": []}}', "a.total_seconds"),
        ('{"": {"total_seconds": 1.0, "runs": []}}', "should have at least 1 character"),
        ('{"schema_version": 2, "stages": {}}', "schema_version"),
    ],
)
def test_what_is_no_timings_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ArtifactError, match="not a Timings") as caught:
        Timings.from_json(text)
    assert reason in str(caught.value)


def test_of_many_defects_a_few_are_named() -> None:
    with pytest.raises(ArtifactError, match="and 7 more") as caught:
        Timings.from_json(json.dumps(dict.fromkeys("abcdefghij", 1)))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "torn, or no JSON"),
        ("{}", "needs schema_version and hardware"),
        ('{"schema_version": 1}', "needs schema_version and hardware"),
        ('{"schema_version": "1", "hardware": {}}', "schema_version"),
        ('{"schema_version": 0, "hardware": {}}', "schema_version"),
        ('{"schema_version": 1, "hardware": {"hw-a": {"gpus": []}}}', "hardware.hw-a.cpu"),
        ('{"schema_version": 1, "hardware": {"../x": {}}}', "hardware.../x"),
    ],
)
def test_what_is_no_hardware_file_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ArtifactError, match="not a HardwareSidecar") as caught:
        HardwareSidecar.from_json(text)
    assert reason in str(caught.value)


def test_a_later_version_is_refused_as_such() -> None:
    with pytest.raises(ArtifactError, match="schema_version 2 is newer than 1"):
        HardwareSidecar.from_json('{"schema_version": 2, "hardware": {}, "units": "SI"}')


def test_what_a_later_minor_version_added_is_kept() -> None:
    content = {
        "sac_train": {
            "total_seconds": 1.0,
            "runs": [{"seconds": 1.0, "energy_joules": 5}],
            "note": {"a": [1]},
        }
    }
    assert json.loads(Timings.from_json(json.dumps(content)).to_json()) == content
    sidecar = {
        "schema_version": 1,
        "hardware": {
            "hw-a": {
                "cpu": {"logical_threads": 2, "sockets": 1},
                "gpus": [{"model": "X", "ecc": True}],
                "jobs": [],
                "tpus": [],
            }
        },
        "comment": "x",
    }
    assert json.loads(HardwareSidecar.from_json(json.dumps(sidecar)).to_json()) == sidecar
