from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from drivetrain_api.artifacts.policy_export import ExportFormat, PolicyExport
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.evaluation import export as exporting
from drivetrain_trainer.evaluation.export import (
    DeployedPolicy,
    ExportError,
    export_policy,
    largest_difference,
    require_packages,
    write_program,
)
from drivetrain_trainer.evaluation.policy_loading import load_policy
from drivetrain_trainer.evidence.run_directory import RunDirectory

MakeRun = Callable[..., RunDirectory]


def test_actions_are_those_that_the_environment_applies(make_run: MakeRun) -> None:
    loaded = load_policy(make_run(task={"name": "hopper"}).path)
    env = make_env(loaded.task, num_envs=4, seed=0)
    observation = env.reset().clone()
    action = loaded.policy(observation)
    env.step(action)
    deployed = DeployedPolicy(loaded.policy, env.action_low, env.action_high)
    assert torch.equal(deployed(observation), env._state.action)  # type: ignore[attr-defined] # the raw action
    env.close()


@pytest.mark.slow
def test_both_forms_agree_with_the_live_policy(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run([1000, 2000], best=1000, task={"name": "pusher"})
    loaded = load_policy(run.path)
    result = export_policy(loaded, list(ExportFormat), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "pusher_policy.json",
        "pusher_policy.onnx",
        "pusher_policy.pt2",
    }
    export = PolicyExport.from_json(result.sidecar.read_bytes())
    assert export == result.export
    assert (export.task, export.env_steps) == ("pusher", 1000)
    assert export.checkpoint == "step_000000001000"
    assert (export.observation.shape, export.action.shape) == (("batch", 23), ("batch", 7))
    assert export.action_low == (-2.0,) * 7
    for file in export.files:
        content = (tmp_path / "out" / file.name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.bytes, file.sha256)
        assert file.max_abs_difference <= 1e-5
    deployed = DeployedPolicy(
        loaded.policy, torch.tensor(export.action_low), torch.tensor(export.action_high)
    )
    session = onnxruntime.InferenceSession(tmp_path / "out" / "pusher_policy.onnx")
    program = torch.export.load(tmp_path / "out" / "pusher_policy.pt2").module()
    for batch in (1, 3, 500):
        observation = torch.randn(batch, 23)
        expected = deployed(observation)
        (onnx,) = session.run(["action"], {"observation": observation.numpy()})
        torch.testing.assert_close(torch.from_numpy(onnx), expected, atol=2e-5, rtol=0)
        torch.testing.assert_close(program(observation), expected, atol=2e-5, rtol=0)


def test_a_form_that_differs_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = DeployedPolicy(nn.Linear(3, 2), -torch.ones(2), torch.ones(2)).eval()

    def export_wrongly(policy: DeployedPolicy, _example: Tensor, path: Path) -> exporting.Run:
        path.write_bytes(b"wrong")
        return lambda observation: policy(observation) + 1e-4

    monkeypatch.setitem(exporting._EXPORTERS, ExportFormat.TORCH, export_wrongly)
    with pytest.raises(ExportError, match=r"x\.pt2 differs from the live policy by 0\.0001"):
        write_program(deployed, ExportFormat.TORCH, 3, tmp_path, "x")
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_is_not_finite_differs_infinitely() -> None:
    deployed = DeployedPolicy(nn.Linear(3, 2), -torch.ones(2), torch.ones(2)).eval()
    broken, allowed = largest_difference(deployed, lambda o: deployed(o) * torch.nan, 3)
    assert broken == float("inf")
    assert broken > allowed


def test_differences_are_shares_of_half_the_range() -> None:
    deployed = DeployedPolicy(nn.Linear(3, 2), -1000 * torch.ones(2), 1000 * torch.ones(2)).eval()
    difference, allowed = largest_difference(deployed, lambda o: deployed(o) + 0.5, 3)
    assert allowed == exporting.TOLERANCE
    assert difference == pytest.approx(5e-4, rel=0.2)


def test_a_steep_policy_may_round_otherwise_but_not_answer_otherwise() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(64, 1, bias=False)
    nn.init.normal_(layer.weight, std=300.0)
    deployed = DeployedPolicy(layer, -torch.ones(1), torch.ones(1)).eval()

    def summed_backwards(observation: Tensor) -> Tensor:
        terms = (observation * layer.weight).flip(-1).detach()
        return terms.cumsum(-1)[:, -1:]

    difference, allowed = largest_difference(deployed, summed_backwards, 64)
    assert exporting.TOLERANCE < difference <= allowed
    wrong, allowed = largest_difference(deployed, lambda o: 1.001 * deployed(o), 64)
    assert wrong > allowed


def test_missing_onnx_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name in ("onnx", "onnxscript") else real(name),
    )
    with pytest.raises(
        ExportError, match=r"needs onnx, onnxscript: pip install 'drivetrain\[export\]'"
    ):
        require_packages([ExportFormat.ONNX])
    require_packages([ExportFormat.TORCH])
