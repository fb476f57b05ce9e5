"""`training.logger`: which backends it names, what is refused, what is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drivetrain_api.compose import compose, parse_run
from drivetrain_api.errors import SpecError
from drivetrain_api.loggers import UnknownLoggerError, installed_loggers, logger_entry_point
from drivetrain_api.notices import without_effect
from drivetrain_api.tasks import TaskSpec
from drivetrain_api.training import EvaluatorConfig, TrainingConfig, logger_names
from drivetrain_api.trainingrun import TrainingRunSpec

TASK = TaskSpec(name="toy", factory="toy:make", observation_dim=3, action_dim=1, episode_length=9)


def spec_with(**training: Any) -> TrainingRunSpec:
    document = {
        "metadata": {"name": "run"},
        "spec": {
            "algo": {"name": "sac", "num_envs": 4, "batch_size": 32, "replay_rows": 1000},
            "task": {"name": "toy"},
            "training": {"total_env_steps": 1000, **training},
        },
    }
    return parse_run(document).spec


def refusal(**training: Any) -> str:
    with pytest.raises(SpecError) as caught:
        compose(spec_with(**training), TASK)
    (violation,) = caught.value.violations
    return str(violation)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tensorboard", ("tensorboard",)),
        ("none", ()),
        ("tensorboard,jsonl", ("tensorboard", "jsonl")),
        ("tensorboard, wandb ,jsonl", ("tensorboard", "wandb", "jsonl")),
    ],
)
def test_one_or_several_backends_are_named(text: str, names: tuple[str, ...]) -> None:
    assert logger_names(text) == names
    assert compose(spec_with(logger=text), TASK).training.logger == text


def test_tensorboard_is_the_default() -> None:
    assert logger_names(TrainingConfig().logger) == ("tensorboard",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("none,jsonl", "none,jsonl: none stands alone"),
        ("none,none", "none stands alone"),
        ("jsonl,tensorboard,jsonl", "names jsonl twice"),
        ("tensorbord", "no logger 'tensorbord' is installed; did you mean tensorboard?"),
        ("jsonl,comet", "no logger 'comet' is installed; have: jsonl, tensorboard, wandb"),
        ("", "training.logger"),
        ("a,,b", "training.logger"),
        ("TensorBoard", "training.logger"),
        (",".join("abcdefghi"), "training.logger"),
    ],
)
def test_a_wrong_choice_is_refused_by_name(text: str, words: str) -> None:
    assert words in refusal(logger=text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("wandb_project", "a/b"),
        ("wandb_project", "x" * 129),
        ("wandb_entity", ""),
        ("wandb_tags", ["x" * 65]),
        ("wandb_tags", [""]),
        ("wandb_tags", ["t"] * 65),
        ("wandb_tags", "one"),
        ("wandb_notes", "x" * 4097),
        ("wandb_mode", "on"),
        ("trace_enabled", "true"),
        ("trace_output_dir", ""),
        ("trace_max_megabytes", 0),
        ("trace_max_megabytes", 65_537),
        ("trace_max_megabytes", True),
    ],
)
def test_keys_of_backends_and_traces_are_bounded(key: str, value: object) -> None:
    with pytest.raises(SpecError, match=f"training.{key}"):
        spec_with(**{key: value})


def test_a_secret_is_named_in_the_runs_namespace_and_has_a_default_key() -> None:
    reference = spec_with(wandb_api_key_secret_ref={"name": "wandb"}).training
    assert reference.wandb_api_key_secret_ref is not None
    assert reference.wandb_api_key_secret_ref.key == "api-key"
    with pytest.raises(SpecError, match=r"wandb_api_key_secret_ref\.name"):
        spec_with(wandb_api_key_secret_ref={"name": "Not_a_Name"})


def test_keys_without_effect_are_told_and_nothing_else() -> None:
    spec = spec_with(
        wandb_project="robots", wandb_tags=["a"], wandb_mode="online", trace_cuda_events=True
    )
    told = {notice.path: notice.message for notice in without_effect(compose(spec, TASK))}
    assert told == {
        "training.wandb_project": "without effect: training.logger is tensorboard, not wandb",
        "training.wandb_tags": "without effect: training.logger is tensorboard, not wandb",
        "training.trace_cuda_events": "without effect: training.trace_enabled is false",
    }
    idle = spec.model_copy(update={"evaluator": EvaluatorConfig(continuation_steps=10)})
    assert [notice.path for notice in without_effect(idle)][-1] == "evaluator.continuation_steps"
    used = spec_with(logger="jsonl,wandb", wandb_project="robots", trace_enabled=True)
    assert list(without_effect(compose(used, TASK))) == []
    assert list(without_effect(compose(spec_with(), TASK))) == []


def test_what_is_installed_is_found_without_being_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "plugin-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[drivetrain.loggers]\ncsv = no_such_module:make\n")
    assert installed_loggers() == ("jsonl", "tensorboard", "wandb")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed_loggers() == ("csv", "jsonl", "tensorboard", "wandb")
    assert logger_entry_point("csv").value == "no_such_module:make"
    assert compose(spec_with(logger="csv"), TASK).training.logger == "csv"
    with pytest.raises(UnknownLoggerError, match=r"did you mean csv\?"):
        logger_entry_point("csvv")
