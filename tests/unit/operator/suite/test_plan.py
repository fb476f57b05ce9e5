"""From a suite file to members: names, folders, manifests, and refusals that name the member."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from suite_files import TEMPLATE

from drivetrain_api.experiment import ExperimentConfig
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.suite.plan import check, outline, spec_digest
from drivetrain_operator.suite.suite_file import SuiteFile, load

MakeFile = Callable[..., SuiteFile]
GRID = {"algo.actor_learning_rate": [3e-4, 1e-3]}


def test_three_seeds_and_two_rates_are_six_members_variant_by_variant(suite_file: MakeFile) -> None:
    members = outline(suite_file(seeds=[5, 6, 9], grid=GRID))
    assert [(m.name, m.seed, m.run_idx) for m in members] == [
        ("swing-actor-learning-rate-0-0003-s0", 5, 0),
        ("swing-actor-learning-rate-0-0003-s1", 6, 1),
        ("swing-actor-learning-rate-0-0003-s2", 9, 2),
        ("swing-actor-learning-rate-0-001-s0", 5, 0),
        ("swing-actor-learning-rate-0-001-s1", 6, 1),
        ("swing-actor-learning-rate-0-001-s2", 9, 2),
    ]
    assert members[4].run_directory == (
        "actor_learning_rate-0.001/sac/inverted_pendulum/run_1_seed_6"
    )
    assert members[4].artifact_directory == "actor_learning_rate-0.001/sac/inverted_pendulum"


def test_one_variant_needs_no_folder_of_its_own(suite_file: MakeFile) -> None:
    members = outline(suite_file(seeds=2))
    assert [m.run_directory for m in members] == [
        "sac/inverted_pendulum/run_0_seed_0",
        "sac/inverted_pendulum/run_1_seed_1",
    ]
    assert [(m.name, m.variant) for m in members] == [
        ("swing-s0", "default"),
        ("swing-s1", "default"),
    ]


def test_a_variant_may_have_a_task_of_its_own(suite_file: MakeFile) -> None:
    variants = [
        {"name": "Easy"},
        {"name": "hard", "set": {"task.name": "inverted_double_pendulum"}},
    ]
    members = outline(suite_file(list=variants))
    assert [(m.name, m.run_directory) for m in members] == [
        ("swing-easy-s0", "Easy/sac/inverted_pendulum/run_0_seed_0"),
        ("swing-hard-s0", "hard/sac/inverted_double_pendulum/run_0_seed_0"),
    ]


def test_the_manifest_of_a_member(suite_file: MakeFile) -> None:
    file = suite_file(seeds=[7, 8], grid=GRID, root="results/x")
    found = check(file, outline(file), "now-1", "robots")[3]
    assert found.run.metadata.name == "swing-actor-learning-rate-0-001-s1"
    assert found.run.metadata.namespace == "robots"
    assert found.run.metadata.labels == {
        "drivetrain.dev/suite": "swing",
        "drivetrain.dev/variant": "actor_learning_rate-0.001",
        "drivetrain.dev/run-idx": "1",
    }
    spec = found.composed
    assert (spec.seed, spec.algo.seed, spec.algo.actor_learning_rate) == (8, 8, 1e-3)
    assert spec.training.log_dir == (
        "results/x/actor_learning_rate-0.001/sac/inverted_pendulum/run_1_seed_8"
    )
    assert spec.experiment == ExperimentConfig(suite="swing", run_idx=1, invocation="now-1")


def test_the_digest_tells_what_is_trained_and_not_how(suite_file: MakeFile) -> None:
    def digest(invocation: str = "a", **changes: Any) -> str:
        file = suite_file(template={**TEMPLATE, **changes})
        return check(file, outline(file), invocation)[0].digest

    base = digest()
    assert base == digest(restart={"maxRestarts": 5}) == digest(deadlines={"activeSeconds": 9})
    assert base != digest(training={"totalEnvSteps": 401, "device": "cpu"})
    assert base != digest("b"), "of another start"


def test_a_template_file_stands_beside_the_suite_file(
    write: Callable[..., Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(templateFile="run.yaml", seeds=1)
    manifest = {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "whatever"},
        "spec": TEMPLATE,
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(manifest))
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    file = load("../suite.yaml")
    (found,) = check(file, outline(file), "a")
    assert found.composed.algo.num_envs == 2
    (folder / "run.yaml").write_text("kind: Pod\n")
    with pytest.raises(Refusal, match="is no manifest of kind TrainingRun with a spec"):
        load("../suite.yaml")


def judge(suite_file: MakeFile, parts: dict[str, Any]) -> None:
    file = suite_file(**parts)
    check(file, outline(file), "a")


def refused(suite_file: MakeFile, **parts: Any) -> str:
    with pytest.raises(Refusal) as error:
        judge(suite_file, parts)
    assert error.value.exit_code == 2
    return "\n".join(error.value.lines)


def test_a_bad_value_names_the_member_and_the_path(suite_file: MakeFile) -> None:
    said = refused(suite_file, grid={"algo.actor_learning_rate": [0.001, 2.0]}, seeds=3)
    assert said == (
        "suite.yaml: member swing-actor-learning-rate-2-0-s0: algo.actor_learning_rate: "
        "must be a finite number above 0 and at most 1; got 2.0"
    )


def test_a_bad_template_names_the_line_and_whom_it_touches(suite_file: MakeFile) -> None:
    template = {**TEMPLATE, "training": {"totalEnvSteps": True}}
    rates = {"algo.actor_learning_rate": [0.001, 0.002, 0.003, 0.004]}
    said = refused(suite_file, template=template, grid=rates)
    assert said.startswith("suite.yaml:")
    assert (
        "swing-actor-learning-rate-0-003-s0 and 1 more: training.total_env_steps: must be" in said
    )
    line = int(said.split(":")[1])
    assert "totalEnvSteps" in Path("suite.yaml").read_text().splitlines()[line - 1]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"template": {**TEMPLATE, "seed": 1}}, "seed: no template sets it: seeds sets it"),
        (
            {"template": {**TEMPLATE, "algo": {**TEMPLATE["algo"], "seed": 1}}},
            "algo.seed: no template sets it: it would be one for all seeds",
        ),
        (
            {"template": {**TEMPLATE, "training": {"log_root": "x"}}},
            "training.log_root: no template sets it",
        ),
        ({"grid": {"algo.num_env": [2]}}, "algo.num_env: unknown key; did you mean algo.num_envs"),
        ({"grid": {"task.name": ["inverted_pendulu"]}}, "did you mean inverted_pendulum"),
        ({"grid": {"algo.tau": [0.1, 0.1000]}}, "names 0.1 2 times"),
        (
            {"list": [{"name": "a"}, {"name": "b", "set": {"algo.numEnvs": 2}}]},
            "variants a and b amount to the same configuration",
        ),
        ({"seeds": 1000, "grid": {"algo.batch_size": [*range(1, 12)]}}, "more than 10000"),
        ({"seeds": [1, 1]}, "seeds names 1 twice"),
        ({"seeds": 0}, "spec.seeds: Input should be greater than or equal to 1; got 0"),
        ({"name": "A"}, "metadata.name"),
        ({"grid": {}, "random": None}, "spec.grid"),
        ({"grid": GRID, "list": [{"name": "a"}]}, "grid and list exclude each other"),
    ],
)  # fmt: skip
def test_refusals(suite_file: MakeFile, parts: dict[str, Any], words: str) -> None:
    assert words in refused(suite_file, **parts)


@pytest.mark.parametrize("length", [36, 37, 45, 46, 50])
def test_a_name_that_is_too_long_for_its_members_is_refused_with_the_room_there_is(
    suite_file: MakeFile, length: int
) -> None:
    name = "s" * length
    if length <= 36:
        file = suite_file(name=name, grid=GRID, seeds=1)
        assert all(len(m.name) <= 50 for m in outline(file))
        return
    said = refused(suite_file, name=name, grid=GRID)
    assert f"has {length} characters" in said
    assert "at most 50 are allowed: shorten it to 36" in said
    if length <= 45:
        assert len(outline(suite_file(name=name, seeds=2))) == 2, "without variants there is room"


def test_the_digest_of_a_composed_spec_is_that_of_its_file(suite_file: MakeFile) -> None:
    file = suite_file()
    (found,) = check(file, outline(file), "a")
    again = type(found.composed).model_validate_json(found.composed.model_dump_json())
    assert spec_digest(again) == found.digest
