"""The tensor runtime's keys: exact integers, presets, sharing, where collectors' tensors lie."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from drivetrain_api import checks, training
from drivetrain_api.algorithms import AlgoName
from drivetrain_api.compose import chosen, compose, parse_run
from drivetrain_api.errors import SpecError
from drivetrain_api.overrides import apply_overrides
from drivetrain_api.tasks import TaskSpec
from drivetrain_api.training import REMOVED_KEYS, RUNTIME_KNOBS, Simulator
from drivetrain_api.trainingrun import TrainingRunSpec

SIZES = {"num_envs": 4, "batch_size": 32, "replay_rows": 1000}


def document(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "run"},
        "spec": {"algo": {"name": "sac"}, "task": {"name": "toy"}} | spec,
    }


def task(*, backend: str | None = None, mjwarp: dict[str, Any] | None = None) -> TaskSpec:
    """As a motion tracking task of a humanoid would be declared."""
    return TaskSpec(
        name="toy",
        factory="toy:make",
        observation_dim=3,
        action_dim=1,
        episode_length=100,
        simulators=frozenset(Simulator),
        presets={AlgoName.SAC: {"algo": SIZES, "training": {"total_env_steps": 1000}}},
        simulator_presets={Simulator.MJWARP: mjwarp} if mjwarp is not None else {},
        backend=backend,
    )


def refusals(document: dict[str, Any], of: TaskSpec | None = None) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        compose(parse_run(document).spec, of or task())
    return {violation.path: violation.message for violation in caught.value.violations}


@pytest.fixture
def both_simulators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "AVAILABLE_SIMULATORS", frozenset(Simulator))


WRONG = [True, False, "1", "two", 1.0, 1.5, 0, -1, [1], {"a": 1}]


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("key", RUNTIME_KNOBS)
def test_a_knob_that_is_no_exact_positive_integer_is_refused_with_its_range(
    key: str, value: object
) -> None:
    found = refusals(document(training={to_camel(key): value}))
    maximum = RUNTIME_KNOBS[key].maximum
    assert list(found) == [f"training.{key}"]
    assert f"an integer from 1 to {maximum or ''}" in found[f"training.{key}"]
    assert found[f"training.{key}"].endswith(f"got {json.dumps(value)}")


@pytest.mark.parametrize(
    ("key", "maximum"), [(key, knob.maximum) for key, knob in RUNTIME_KNOBS.items() if knob.maximum]
)
def test_a_knob_goes_up_to_its_maximum_and_no_further(key: str, maximum: int) -> None:
    spec = compose(parse_run(document(training={key: maximum})).spec, task())
    assert getattr(spec.training, key) == maximum
    found = refusals(document(training={key: maximum + 1}))
    assert f"from 1 to {maximum}; got {maximum + 1}" in found[f"training.{key}"]


def test_the_knobs_are_those_of_the_contract() -> None:
    assert {name: (knob.default, knob.maximum) for name, knob in RUNTIME_KNOBS.items()} == {
        "env_steps_per_sync": (1, 1024),
        "inference_slot_capacity": (1, 16),
        "collector_metrics_interval": (1, 10_000),
        "replay_ingress_depth": (2, 16),
        "replay_ingress_slot_rows": (None, None),
    }


@pytest.mark.parametrize("keys", [{}, {"replayIngressSlotRows": None}])
def test_slot_rows_follow_the_number_of_environments(keys: dict[str, Any]) -> None:
    spec = compose(parse_run(document(training=keys)).spec, task())
    assert spec.training.replay_ingress_slot_rows == 4


def test_slot_rows_above_the_number_of_environments_are_refused() -> None:
    found = refusals(document(training={"replayIngressSlotRows": 5}))
    assert found == {
        "training.replay_ingress_slot_rows": "must be from 1 to algo.num_envs (4); got 5"
    }


@pytest.mark.usefixtures("both_simulators")
@pytest.mark.parametrize(
    ("sim", "given", "interval"),
    [
        ("mujoco", {}, 1),
        ("mjwarp", {}, 100),
        ("mjwarp", {"collectorMetricsInterval": 7}, 7),
    ],
)
def test_a_tasks_preset_for_a_simulator_overrides_one_knob_alone(
    sim: str, given: dict[str, Any], interval: int
) -> None:
    of = task(mjwarp={"training": {"collector_metrics_interval": 100}})
    spec = compose(parse_run(document(sim=sim, training=given)).spec, of)
    assert spec.training.collector_metrics_interval == interval
    assert spec.training.inference_slot_capacity == 1
    assert spec.training.replay_ingress_depth == 2
    assert spec.training.replay_ingress_slot_rows == 4
    assert spec.training.total_env_steps == 1000


@pytest.mark.usefixtures("both_simulators")
def test_what_was_chosen_tells_presets_and_manifest_from_defaults() -> None:
    of = task(mjwarp={"training": {"collector_metrics_interval": 100}})
    spec = parse_run(document(sim="mjwarp", training={"replayIngressDepth": 4})).spec
    assert chosen(spec, of)["training"] == {
        "total_env_steps": 1000,
        "collector_metrics_interval": 100,
        "replay_ingress_depth": 4,
    }


@pytest.mark.usefixtures("both_simulators")
def test_a_simulators_preset_is_checked_like_any_other() -> None:
    of = task(mjwarp={"training": {"collector_metrics_interval": 0}})
    assert "in the preset of task toy" in str(refusals(document(sim="mjwarp"), of))
    of = task(mjwarp={"storage": {}})
    assert refusals(document(sim="mjwarp"), of).keys() == {"storage"}


@pytest.mark.parametrize(("retired", "successor"), REMOVED_KEYS.items())
def test_a_removed_key_is_refused_in_manifests_overrides_and_presets(
    retired: str, successor: str
) -> None:
    section, _, key = retired.partition(".")
    message = f"was removed: use {successor} instead"
    for spelled in (key, to_camel(key)):
        assert refusals(document(**{section: {spelled: "cuda"}})) == {retired: message}
        with pytest.raises(SpecError, match="was removed") as refused:
            apply_overrides(document(), [f"{section}.{spelled}=cuda"])
        assert refused.value.violations[0].path == retired
    if section == "training":
        of = task()
        preset = {"algo": SIZES, "training": {"total_env_steps": 1, key: "cuda"}}
        object.__setattr__(of, "presets", {AlgoName.SAC: preset})
        assert message in refusals(document(), of)[retired]


def test_every_removed_key_is_known() -> None:
    assert set(REMOVED_KEYS) == {
        "training.sim_carrier_device",
        "training.inference_transport",
        "env.sim_carrier_device",
        "env.manager_torch_device",
        "env.tensor_runtime_device",
    }


MPS = {"cudaProcessSharing": "mps"}


@pytest.mark.usefixtures("both_simulators")
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"sim": "mujoco", "training": MPS}, "is for sim mjwarp; got mujoco"),
        (
            {"sim": "mjwarp", "training": MPS, "topology": {"ranksPerNode": 2}},
            "is for a single rank; topology has 2",
        ),
        ({"sim": "mjwarp", "training": MPS | {"device": "cpu"}}, "needs a CUDA learner"),
        ({"sim": "mjwarp", "training": {"cudaProcessSharing": "on"}}, 'got "on"'),
        ({"sim": "mjwarp", "training": {"cudaProcessSharing": True}}, "got true"),
        ({"sim": "mjwarp", "training": {"cudaProcessSharing": 1}}, "got 1"),
    ],
)
def test_process_sharing_is_for_a_single_rank_on_mjwarp(spec: dict[str, Any], words: str) -> None:
    found = refusals(document(**spec))
    assert list(found) == ["training.cuda_process_sharing"]
    assert words in found["training.cuda_process_sharing"]


@pytest.mark.usefixtures("both_simulators")
def test_process_sharing_is_off_unless_it_is_asked_for() -> None:
    assert composed(sim="mjwarp").training.cuda_process_sharing is None
    assert composed(sim="mjwarp", training=MPS).training.cuda_process_sharing == "mps"


def composed(of: TaskSpec | None = None, **spec: Any) -> TrainingRunSpec:
    return compose(parse_run(document(**spec)).spec, of or task())


@pytest.mark.usefixtures("both_simulators")
def test_a_simulator_without_a_host_bridge_carries_nothing() -> None:
    found = refusals(document(sim="mjwarp", training={"collectorTensorDevice": "cuda"}))
    assert "lie on its own device" in found["training.collector_tensor_device"]
    for asked in ("auto", "cpu"):
        keys = {"collectorTensorDevice": asked, "device": "cpu"}
        assert composed(sim="mjwarp", training=keys).env.collector_tensor_device is None


def test_a_backend_of_the_tasks_own_decides_for_itself() -> None:
    of = task(backend="robots:Simulator")
    assert composed(of, training={"device": "cpu"}).env.collector_tensor_device is None


def test_the_host_bridges_are_simulators_of_this_release_or_a_later_one() -> None:
    assert Simulator.MUJOCO in training.HOST_BRIDGE_SIMULATORS
    assert Simulator.MJWARP not in training.HOST_BRIDGE_SIMULATORS
