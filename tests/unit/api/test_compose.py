"""Composition order, what is resolved, and every refusal with its path, value and range."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Annotated, Any

import pytest
from pydantic import Field
from pydantic.alias_generators import to_camel

from drivetrain_api.algorithms import AlgoName, CriticKind
from drivetrain_api.compose import compose, derived_seed, parse_run, resolve_task
from drivetrain_api.errors import SpecError
from drivetrain_api.tasks import TaskParameters, TaskSpec
from drivetrain_api.training import REMOVED_KEYS, Simulator


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "run"},
        "spec": {"algo": {"name": "sac"}, "task": {"name": "toy"}} | spec,
    }


def task(**preset: Any) -> TaskSpec:
    return TaskSpec(
        name="toy",
        factory="toy:make",
        observation_dim=3,
        action_dim=1,
        episode_length=100,
        presets={AlgoName.SAC: preset},
    )


def small_task(**preset: Any) -> TaskSpec:
    sizes = {"num_envs": 4, "batch_size": 32, "replay_rows": 1000}
    return task(**({"algo": sizes, "training": {"total_env_steps": 1000}} | preset))


def refusals(document: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        parse_run(document)
    return {violation.path: violation.message for violation in caught.value.violations}


def composed_refusals(spec: dict[str, Any], of: TaskSpec) -> dict[str, str]:
    parsed = parse_run(manifest(**spec)).spec
    with pytest.raises(SpecError) as caught:
        compose(parsed, of)
    return {violation.path: violation.message for violation in caught.value.violations}


# -- parsing -----------------------------------------------------------------------------------


def test_both_spellings_parse_to_the_same_run() -> None:
    camel = manifest(algo={"name": "sac", "numEnvs": 8}, training={"totalEnvSteps": 5})
    snake = manifest(algo={"name": "sac", "num_envs": 8}, training={"total_env_steps": 5})

    assert parse_run(camel) == parse_run(snake)


def test_parsing_leaves_the_document_alone_and_unset_fields_unset() -> None:
    document = manifest(algo={"name": "sac", "gamma": 0.9})
    before = copy.deepcopy(document)

    spec = parse_run(document).spec

    assert document == before
    assert spec.model_dump(exclude_unset=True) == {
        "algo": {"name": AlgoName.SAC, "gamma": 0.9},
        "task": {"name": "toy"},
    }


def test_an_object_of_the_api_server_parses() -> None:
    document = manifest() | {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "status": {"phase": "Running", "attempt": 2},
    }
    document["metadata"] |= {
        "uid": "7e1c",
        "generation": 3,
        "creationTimestamp": "2026-01-31T12:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
    }

    run = parse_run(document)

    assert run.metadata.generation == 3
    assert run.status.attempt == 2


@pytest.mark.parametrize(
    ("spec", "path", "parts"),
    [
        ({"algo": {"name": "sac", "numEnvs": True}}, "algo.num_envs", ("1 to 1048576", "true")),
        ({"algo": {"name": "sac", "numEnvs": "1"}}, "algo.num_envs", ("an integer", '"1"')),
        ({"algo": {"name": "sac", "numEnvs": 1.0}}, "algo.num_envs", ("an integer", "1.0")),
        ({"algo": {"name": "sac", "numEnvs": 0}}, "algo.num_envs", ("1 to 1048576", "got 0")),
        ({"algo": {"name": "sac", "gamma": math.nan}}, "algo.gamma", ("0 to 1", "NaN")),
        ({"algo": {"name": "sac", "gamma": math.inf}}, "algo.gamma", ("finite", "Infinity")),
        ({"algo": {"name": "sac", "gamma": True}}, "algo.gamma", ("a finite number", "true")),
        ({"algo": {"name": "sac", "tau": 0}}, "algo.tau", ("above 0 and at most 1", "got 0")),
        ({"algo": {"name": "sac", "layerNorm": 1}}, "algo.layer_norm", ("true or false", "1")),
        ({"algo": {"name": "sac", "layerNorm": "yes"}}, "algo.layer_norm", ('"yes"',)),
        ({"algo": {"name": "sac", "actorHidden": []}}, "algo.actor_hidden", ("1 to 16 items",)),
        ({"algo": {"name": "sac", "actorHidden": [8, True]}}, "algo.actor_hidden[1]", ("65536",)),
        ({"algo": {"name": "sac", "adamBetas": [0.9]}}, "algo.adam_betas[1]", ("required",)),
        ({"algo": {"name": "sac", "critic": "c52"}}, "algo.critic", ("c51, twin_q", '"c52"')),
        ({"algo": {"name": "sac", "numEnvs": None}}, "algo.num_envs", ("got null",)),
        ({"algo": None}, "algo", ("a mapping", "null")),
        ({"seed": -1}, "seed", ("0 to 4294967295", "-1")),
        ({"seed": 2**32}, "seed", ("0 to 4294967295", "4294967296")),
        ({"training": {"inferenceSlotCapacity": 17}}, "training.inference_slot_capacity", ("16",)),
        ({"training": {"collectorMetricsInterval": 0}}, "training.collector_metrics_interval", ()),
        ({"training": {"replayIngressDepth": 17}}, "training.replay_ingress_depth", ("1 to 16",)),
        ({"training": {"device": "rocm"}}, "training.device", ("auto, cpu, mps, cuda", '"rocm"')),
        ({"training": {"totalEnvSteps": 0}}, "training.total_env_steps", ("1 to", "got 0")),
        ({"task": {"name": "toy", "overrides": {"a": [1]}}}, "task.overrides.a", ("[1]",)),
        ({"task": {}}, "task.name", ("required", "1 to 63 characters")),
        ({"task": {"name": "toy", "entryPoint": "no colon"}}, "task.entry_point", ("matching",)),
        ({"topology": {"nodes": 65}}, "topology.nodes", ("1 to 64", "65")),
        ({"storage": {"size": "10 GB"}}, "storage.size", ('"10 GB"',)),
        ({"podTemplate": []}, "pod_template", ("a mapping",)),
    ],
)
def test_a_wrong_value_names_path_value_and_range(
    spec: dict[str, Any], path: str, parts: tuple[str, ...]
) -> None:
    found = refusals(manifest(**spec))

    assert list(found) == [path]
    for part in parts:
        assert part in found[path]


@pytest.mark.parametrize(
    ("spec", "path", "parts"),
    [
        ({"algo": {"name": "sac", "numEnv": 1}}, "algo.num_env", ("algo.num_envs", "numEnvs")),
        ({"training": {"numEnvs": 1}}, "training.num_envs", ("did you mean algo.num_envs",)),
        ({"trainng": {}}, "trainng", ("did you mean training?",)),
        ({"numEnvs": 1}, "num_envs", ("did you mean algo.num_envs",)),
        ({"topology": {"gpus": 1}}, "topology.gpus", ("known here: nodes, ranks_per_node",)),
        (
            {"algo": {"name": "sac", "numEnvs": 1, "num_envs": 1}},
            "algo.num_envs",
            ("given twice",),
        ),
    ],
)
def test_an_unknown_key_names_near_ones(
    spec: dict[str, Any], path: str, parts: tuple[str, ...]
) -> None:
    found = refusals(manifest(**spec))

    assert list(found) == [path]
    for part in parts:
        assert part in found[path]


@pytest.mark.parametrize("spelling", [str, to_camel])
@pytest.mark.parametrize(("retired", "successor"), REMOVED_KEYS.items())
def test_a_retired_key_names_its_successor(retired: str, successor: str, spelling: Any) -> None:
    section, key = retired.split(".")

    found = refusals(manifest(**{section: {spelling(key): "cpu"}}))

    assert found == {retired: f"was removed: use {successor} instead"}


def test_a_successor_is_a_key_that_exists() -> None:
    for successor in REMOVED_KEYS.values():
        section, key = successor.split(".")
        spec = parse_run(manifest(**{section: {key: "cpu"}})).spec
        assert getattr(getattr(spec, section), key) == "cpu"


@pytest.mark.parametrize(
    ("algo", "parts"),
    [
        ({"name": "ppo", "clip": 0.2}, ("ppo is not available", "available: sac")),
        ({"name": "sacc"}, ('"sacc"', "did you mean sac?")),
        ({"name": "dreamer"}, ("unknown algorithm", "available: sac")),
        ({"name": 3}, ("unknown algorithm 3",)),
        ({}, ("is required", "sac")),
    ],
)
def test_an_algorithm_is_refused_by_name_alone(
    algo: dict[str, Any], parts: tuple[str, ...]
) -> None:
    found = refusals(manifest(algo=algo))

    assert list(found) == ["algo.name"]
    for part in parts:
        assert part in found["algo.name"]


def test_a_simulator_that_this_release_lacks_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drivetrain_api.checks.AVAILABLE_SIMULATORS", {Simulator.MUJOCO})
    found = refusals(manifest(sim="mjwarp"))

    assert found == {"sim": "mjwarp is not available in this release; available: mujoco"}


def test_every_violation_is_reported_at_once() -> None:
    found = refusals(
        manifest(algo={"name": "ppo"}, seed="x", training={"logInterval": 0, "foo": 1})
    )

    assert set(found) == {"algo.name", "seed", "training.log_interval", "training.foo"}


@pytest.mark.parametrize("document", [[], "text", None, 3])
def test_a_document_that_is_no_mapping_is_refused(document: Any) -> None:
    assert "a manifest is a mapping" in refusals(document)[""]


@pytest.mark.parametrize("name", ["", "Upper", "a" * 51, "-a", "a.b"])
def test_a_name_that_pods_cannot_carry_is_refused(name: str) -> None:
    found = refusals(manifest() | {"metadata": {"name": name}})

    assert list(found) == ["metadata.name"]


@pytest.mark.parametrize(
    ("spec", "path", "parts"),
    [
        (
            {"training": {"totalEnvSteps": 5, "iterations": 6}},
            "training.iterations",
            ("6 contradicts training.total_env_steps 5",),
        ),
        (
            {"training": {"device": "cpu", "collectorTensorDevice": "cuda"}},
            "training.collector_tensor_device",
            ("cuda contradicts training.device cpu",),
        ),
        (
            {"training": {"device": "cpu"}, "env": {"collectorTensorDevice": "cuda:1"}},
            "env.collector_tensor_device",
            ("cuda:1 contradicts cpu",),
        ),
        (
            {"training": {"device": "mps", "collectorTensorDevice": "cuda"}},
            "training.collector_tensor_device",
            ("cuda contradicts training.device mps",),
        ),
        (
            {"training": {"device": "cuda:0"}, "env": {"collectorTensorDevice": "cuda:1"}},
            "env.collector_tensor_device",
            ("cuda:1 contradicts cuda:0",),
        ),
        (
            {"training": {"cudaProcessSharing": "mps"}},
            "training.cuda_process_sharing",
            ("mps is for sim mjwarp; got mujoco",),
        ),
        (
            {"training": {"logRoot": "a", "logDir": "b"}},
            "training.log_dir",
            ("b contradicts training.log_root a",),
        ),
        (
            {"storage": {"claimName": "c", "emptyDir": True}},
            "storage",
            ("storage.claim_name and storage.empty_dir",),
        ),
        ({"storage": {"size": "1Gi", "claimName": "c"}}, "storage", ("storage.size",)),
        (
            {"storage": {"storageClassName": "fast"}},
            "storage.storage_class_name",
            ("fast needs storage.size",),
        ),
        (
            {"accelerator": {"mps": {"mode": "InContainer"}}},
            "accelerator.mps.mode",
            ("InContainer needs accelerator.gpus_per_node", "got 0"),
        ),
        (
            {"accelerator": {"mps": {"activeThreadPercentage": 50}}},
            "accelerator.mps.active_thread_percentage",
            ("50 needs accelerator.mps.mode",),
        ),
    ],
)
def test_contradictory_options_are_refused_without_a_task(
    spec: dict[str, Any], path: str, parts: tuple[str, ...]
) -> None:
    found = refusals(manifest(**spec))

    assert list(found) == [path]
    for part in parts:
        assert part in found[path]


def test_an_empty_dir_that_is_off_is_no_kind_of_storage() -> None:
    spec = parse_run(manifest(storage={"claimName": "c", "emptyDir": False})).spec

    assert spec.storage.claim_name == "c"


# -- tasks -------------------------------------------------------------------------------------


def test_an_unknown_task_is_refused_at_its_path() -> None:
    spec = parse_run(manifest(task={"name": "no_such_task"})).spec

    with pytest.raises(SpecError) as caught:
        resolve_task(spec)

    (violation,) = caught.value.violations
    assert violation.path == "task.name"
    assert "'no_such_task'" in violation.message


def test_an_entry_point_that_does_not_load_is_refused_at_its_path() -> None:
    spec = parse_run(manifest(task={"name": "mine", "entryPoint": "no_such_module:TASK"})).spec

    with pytest.raises(SpecError) as caught:
        resolve_task(spec)

    (violation,) = caught.value.violations
    assert violation.path == "task.entry_point"
    assert "no_such_module:TASK" in violation.message


# -- composition -------------------------------------------------------------------------------


def test_the_manifest_beats_the_preset_and_the_preset_the_default() -> None:
    preset = small_task(
        algo={"num_envs": 4, "batch_size": 32, "replay_rows": 1000, "gamma": 0.9},
        checkpoint={"keep": 7},
        evaluator={"interval": 50},
    )
    spec = parse_run(manifest(algo={"name": "sac", "gamma": 0.5})).spec

    composed = compose(spec, preset)

    assert composed.algo.gamma == 0.5
    assert composed.algo.num_envs == 4
    assert composed.algo.tau == 0.125
    assert composed.checkpoint.keep == 7
    assert composed.evaluator.interval == 50


def test_a_manifest_that_states_a_default_beats_the_preset() -> None:
    spec = parse_run(manifest(algo={"name": "sac", "tau": 0.125})).spec
    preset = small_task(algo={"num_envs": 4, "batch_size": 8, "replay_rows": 99, "tau": 0.5})

    assert compose(spec, preset).algo.tau == 0.125


def test_an_explicit_null_takes_a_preset_back() -> None:
    spec = parse_run(manifest(evaluator={"interval": None})).spec

    assert compose(spec, small_task(evaluator={"interval": 5})).evaluator.interval is None


def test_iterations_displace_a_preset_number_of_steps() -> None:
    spec = parse_run(manifest(training={"iterations": 7})).spec

    composed = compose(spec, small_task())

    assert composed.training.iterations == 7
    assert composed.training.total_env_steps is None


def test_a_null_length_keeps_the_preset() -> None:
    spec = parse_run(manifest(training={"iterations": None})).spec

    assert compose(spec, small_task()).training.total_env_steps == 1000


def test_what_hangs_on_other_settings_is_resolved() -> None:
    spec = parse_run(manifest(seed=5)).spec

    composed = compose(spec, small_task())

    assert composed.algo.seed == 5
    assert composed.env.seed == derived_seed(5, "env")
    assert composed.training.replay_ingress_slot_rows == 4
    assert composed.training.log_root == "logs/sac/toy"
    assert composed.checkpoint.interval == 100


def test_what_is_set_is_not_resolved_over() -> None:
    spec = parse_run(
        manifest(
            algo={"name": "sac", "seed": 1},
            env={"seed": 0},
            training={"replayIngressSlotRows": 3, "logDir": "here"},
            checkpoint={"interval": 9},
        )
    ).spec

    composed = compose(spec, small_task())

    assert (composed.algo.seed, composed.env.seed) == (1, 0)
    assert composed.training.replay_ingress_slot_rows == 3
    assert (composed.training.log_dir, composed.training.log_root) == ("here", None)
    assert composed.checkpoint.interval == 9


def test_the_checkpoint_interval_of_a_run_in_iterations_is_in_env_steps() -> None:
    spec = parse_run(
        manifest(training={"iterations": 11, "envStepsPerSync": 2}, topology={"ranksPerNode": 3})
    ).spec

    # 11 iterations x 2 ticks x 4 environments x 3 ranks = 264 steps, a tenth rounded up
    assert compose(spec, small_task()).checkpoint.interval == 27


@pytest.mark.parametrize(
    ("training", "residency"),
    [
        ({}, None),
        ({"device": "cpu"}, "cpu"),
        ({"device": "cuda:1"}, "cuda:1"),
        ({"device": "cuda:1", "collectorTensorDevice": "cuda"}, "cuda:1"),
        ({"device": "cuda"}, "cuda"),
        ({"device": "mps"}, "cpu"),
        ({"collectorTensorDevice": "cuda"}, "cuda"),
        ({"collectorTensorDevice": "cpu"}, "cpu"),
        ({"device": "cuda", "collectorTensorDevice": "cpu"}, "cpu"),
    ],
)
def test_collector_residency_is_resolved_where_the_configuration_decides_it(
    training: dict[str, Any], residency: str | None
) -> None:
    spec = parse_run(manifest(training=training)).spec

    assert compose(spec, small_task()).env.collector_tensor_device == residency


def test_composing_twice_changes_nothing() -> None:
    preset = small_task(algo={"num_envs": 4, "batch_size": 8, "replay_rows": 99, "tau": 0.5})
    once = compose(parse_run(manifest(seed=3)).spec, preset)

    assert compose(once, preset) == once


def test_composition_leaves_its_inputs_alone() -> None:
    preset = small_task()
    spec = parse_run(manifest(training={"iterations": 7})).spec
    before = spec.model_dump(exclude_unset=True), copy.deepcopy(dict(preset.presets))

    compose(spec, preset)

    assert (spec.model_dump(exclude_unset=True), dict(preset.presets)) == before


def test_derived_seeds_differ_by_purpose_and_stay_the_same() -> None:
    assert derived_seed(0, "env") == 3045519550
    assert len({derived_seed(seed, purpose) for seed in range(50) for purpose in "ab"}) == 100


@pytest.mark.parametrize(
    ("spec", "path", "parts"),
    [
        (
            {"training": {"replayIngressSlotRows": 5}},
            "training.replay_ingress_slot_rows",
            ("1 to algo.num_envs (4)", "got 5"),
        ),
        (
            {"algo": {"name": "sac", "batchSize": 1001}},
            "algo.batch_size",
            ("at most algo.replay_rows (1000)", "got 1001"),
        ),
        (
            {"algo": {"name": "sac", "learningStarts": 251}},
            "algo.replay_rows",
            ("at least 1004", "algo.learning_starts 251 x algo.num_envs 4", "got 1000"),
        ),
        (
            {"algo": {"name": "sac", "vMin": 2, "vMax": 2}},
            "algo.v_min",
            ("below algo.v_max (2.0)", "got 2.0"),
        ),
        ({"evaluator": {"target": 5}}, "evaluator.target", ("5.0 needs evaluator.interval",)),
        ({"training": {"iterations": 2**62}}, "training.iterations", ("at most",)),
    ],
)
def test_contradictions_of_the_composed_run_are_refused(
    spec: dict[str, Any], path: str, parts: tuple[str, ...]
) -> None:
    found = composed_refusals(spec, small_task())

    assert list(found) == [path]
    for part in parts:
        assert part in found[path]


class ToyParameters(TaskParameters):
    steps: Annotated[int, Field(strict=True, ge=1, le=9)] = 5


def test_an_override_that_the_task_lacks_is_refused() -> None:
    toy = dataclasses.replace(small_task(), parameters=ToyParameters)

    found = composed_refusals({"task": {"name": "toy", "overrides": {"step": 1, "steps": 10}}}, toy)

    assert "did you mean steps?" in found["task.overrides.step"]
    assert found["task.overrides.steps"] == "must be an integer from 1 to 9; got 10"


def test_a_run_needs_a_length() -> None:
    found = composed_refusals({}, task())

    assert list(found) == ["training.total_env_steps"]
    assert "training.iterations" in found["training.total_env_steps"]


def test_what_just_fits_is_accepted() -> None:
    algo = {"name": "sac", "batchSize": 1000, "learningStarts": 250, "vMin": 0, "vMax": 1}
    spec = parse_run(manifest(algo=algo, training={"replayIngressSlotRows": 4})).spec

    assert compose(spec, small_task()).algo.batch_size == 1000


def test_a_tick_fits_the_replay_even_without_a_warm_up() -> None:
    algo = {"name": "sac", "learningStarts": 0, "numEnvs": 1001}

    assert list(composed_refusals({"algo": algo}, small_task())) == ["algo.replay_rows"]


def test_a_c51_support_does_not_bind_twin_q() -> None:
    spec = parse_run(manifest(algo={"name": "sac", "critic": "twin_q", "vMin": 2, "vMax": 2})).spec

    assert compose(spec, small_task()).algo.critic is CriticKind.TWIN_Q


def test_a_simulator_that_the_task_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    both = frozenset(Simulator)
    monkeypatch.setattr("drivetrain_api.checks.AVAILABLE_SIMULATORS", both)

    found = composed_refusals({"sim": "mjwarp"}, small_task())

    assert found == {"sim": "task toy runs on mujoco; got mjwarp"}


@pytest.mark.parametrize(
    ("preset", "path", "part"),
    [
        ({"algo": {"num_env": 1}}, "algo.num_env", "did you mean algo.num_envs"),
        ({"algo": {"num_envs": True}}, "algo.num_envs", "1 to 1048576"),
        ({"algo": 5}, "algo", "a mapping"),
        ({"training": 5}, "training", "a mapping"),
        ({"storage": {}}, "storage", "algo, checkpoint, evaluator, training alone"),
    ],
)
def test_a_wrong_preset_is_the_tasks_fault(preset: dict[str, Any], path: str, part: str) -> None:
    found = composed_refusals({}, task(**preset))

    assert list(found) == [path]
    assert found[path].startswith("in the preset of task toy: ")
    assert part in found[path]
