from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from drivetrain_api import labels
from drivetrain_api.attempt import AttemptSpec
from drivetrain_api.digest import PROGRESS_LIMIT, decode
from drivetrain_api.trainingrun import TrainingRun
from drivetrain_operator.manifests.config import (
    attempt_config_map,
    progress_config_map,
    run_json,
)

MakeRun = Callable[..., TrainingRun]


def test_run_json_says_what_the_manifest_said_and_no_default(make_run: MakeRun) -> None:
    run = make_run(seed=4, algo={"name": "sac", "numEnvs": 16})
    assert json.loads(run_json(run, 2)) == {
        "name": "walk",
        "namespace": "lab",
        "uid": "run-uid-1",
        "attempt": 2,
        "created": "2026-03-01T12:00:00Z",
        "spec": {
            "algo": {"name": "sac", "numEnvs": 16},
            "task": {"name": "hopper"},
            "seed": 4,
        },
    }


def test_run_json_is_read_back_as_it_was(make_run: MakeRun) -> None:
    run = make_run(storage={"size": "1Gi"}, task={"name": "hopper", "overrides": {"x": 1.5}})
    spec = AttemptSpec.model_validate_json(run_json(run, 1)).spec
    assert spec == run.spec
    assert spec.model_dump(exclude_unset=True) == run.spec.model_dump(exclude_unset=True)


def test_a_run_that_no_store_gave_is_refused(make_run: MakeRun) -> None:
    run = make_run()
    metadata = run.metadata.model_copy(update={"creation_timestamp": None})
    with pytest.raises(ValueError, match="walk has no creationTimestamp"):
        run_json(run.model_copy(update={"metadata": metadata}), 1)


def test_the_attempts_config_map_cannot_be_changed(make_run: MakeRun) -> None:
    config_map = attempt_config_map(make_run(), 1)
    assert config_map["immutable"] is True
    assert set(config_map["data"]) == {"run.json"}


def test_the_progress_config_map_is_there_before_anything_is_written(make_run: MakeRun) -> None:
    config_map = progress_config_map(make_run())
    assert config_map["data"] == {"progress": ""}
    assert decode(config_map["data"]["progress"], PROGRESS_LIMIT) is None
    assert "immutable" not in config_map
    assert config_map["metadata"]["labels"][labels.PROGRESS] == "walk-trainer"
