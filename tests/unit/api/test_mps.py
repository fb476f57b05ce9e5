"""Memory limits of MPS clients, and evidence that cannot claim more than it holds."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.mps_evidence import MpsEvidence, PipeKind
from drivetrain_api.compose import parse_run
from drivetrain_api.errors import SpecError
from drivetrain_api.mps import PATTERN, MemoryLimits, parse_memory_limits

GPU = "GPU-0d3a3c2e-1111-2222-3333-444455556666"
OTHER = "GPU-0d3a3c2e-1111-2222-3333-444455557777"
WHOLE: dict[str, Any] = {
    "effective": "mps",
    "validated": True,
    "rank": 1,
    "world_size": 2,
    "learner_device": "cuda:0",
    "collector_device": "cpu",
    "learner_gpu_uuid": GPU,
    "pipe_directory_env": "/run/mps/0/pipe",
    "pipe_directory": "/run/mps/0/pipe",
    "control_pipe": "/run/mps/0/pipe/control",
    "control_pipe_kind": PipeKind.SOCKET,
    "server_pid": 12,
    "ambient_server": True,
}


@pytest.mark.parametrize(
    ("text", "limits", "variable"),
    [
        (None, MemoryLimits(), ""),
        ("4G", MemoryLimits("4G"), "0=4G,1=4G"),
        ("0=4G", MemoryLimits(None, ((0, "4G"),)), "0=4G"),
        ("1=512M, 0=4G", MemoryLimits(None, ((0, "4G"), (1, "512M"))), "0=4G,1=512M"),
        ("2G,1=512M", MemoryLimits("2G", ((1, "512M"),)), "0=2G,1=512M"),
    ],
)
def test_limits_are_read(text: str | None, limits: MemoryLimits, variable: str) -> None:
    assert parse_memory_limits(text, 2) == limits
    assert limits.as_environment(2) == variable
    assert text is None or re.search(PATTERN, text), "the API server lets it in"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no limit: write 4G for every GPU, or 0=4G,1=512M for each"),
        ("4", "'4' is no limit"),
        ("4GB", "'4GB' is no limit"),
        ("0G", "'0G' is no limit"),
        ("-1=4G", "is no limit"),
        ("4G;1=2G", "is no limit"),
        ("4G\nquit", "is no limit"),
        ("2=4G", "'2=4G' names GPU 2, a pod has 2: allowed are 0 to 1"),
        ("0=4G,0=2G", "two limits for GPU 0"),
        ("4G,2G", "two limits for every GPU"),
    ],
)
def test_what_is_no_limit_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"limit|names") as caught:
        parse_memory_limits(text, 2)
    assert message in str(caught.value)


def test_a_manifest_with_a_bad_limit_is_refused_by_path() -> None:
    document = {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "run"},
        "spec": {
            "algo": {"name": "sac"},
            "task": {"name": "half_cheetah"},
            "accelerator": {
                "gpusPerNode": 1,
                "mps": {"mode": "InContainer", "pinnedMemoryLimit": "1=4G"},
            },
        },
    }
    with pytest.raises(SpecError, match=r"accelerator\.mps\.pinned_memory_limit: '1=4G' names"):
        parse_run(document)


def test_whole_evidence_is_kept() -> None:
    evidence = MpsEvidence(**WHOLE)
    assert MpsEvidence.from_json(evidence.to_json()) == evidence


def test_evidence_that_claims_nothing_needs_nothing() -> None:
    plain = {name: WHOLE[name] for name in ("rank", "world_size", "learner_device")}
    assert not MpsEvidence(**plain, collector_device="cpu").validated


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            ({name: None}, f"validated evidence needs {name}")
            for name in (
                "effective",
                "learner_gpu_uuid",
                "pipe_directory_env",
                "pipe_directory",
                "control_pipe",
                "control_pipe_kind",
                "server_pid",
            )
        ),
        ({"collector_gpu_uuid": OTHER}, "share no GPU"),
        ({"pipe_directory_env": "/elsewhere"}, "pointed at another pipe directory"),
        ({"rank": 2}, "rank 2 is not below world_size 2"),
        ({"ambient_server": False}, "ambient exactly where"),
        ({"configured": "mps"}, "ambient exactly where"),
        ({"learner_gpu_uuid": "0"}, "learner_gpu_uuid"),
        ({"effective": "time-slicing"}, "effective"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_claim_without_its_evidence_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MpsEvidence(**{**WHOLE, **change})


def test_a_file_that_claims_too_much_is_not_read() -> None:
    text = MpsEvidence(**WHOLE).to_json().replace('"server_pid": 12', '"server_pid": null')
    with pytest.raises(ArtifactError, match="validated evidence needs server_pid"):
        MpsEvidence.from_json(text)
