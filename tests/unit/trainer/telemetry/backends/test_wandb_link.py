from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain_trainer.telemetry.backends.wandb_link import client_environment

FOLDER = Path("/runs/one/wandb")


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("WANDB_API_KEY", "a key", True),
        ("WANDB_API_KEY", "", False),
        ("WANDB_BASE_URL", "https://wandb.lab", True),
        ("WANDB_IDENTITY_TOKEN_FILE", "/token", True),
        ("HTTPS_PROXY", "http://proxy:1", True),
        ("WANDB_ERROR_REPORTING", "true", True),
        ("WANDB_PROJECT", "elsewhere", False),
        ("WANDB_ENTITY", "elsewhere", False),
        ("WANDB_MODE", "disabled", False),
        ("WANDB_RUN_ID", "another", False),
        ("WANDB_RESUME", "never", False),
        ("WANDB_SERVICE", "3-1-unix-x", False),
        ("WANDB_SWEEP_ID", "sweep", False),
        ("WANDB_DIR", "/elsewhere", False),
        ("WANDB_CONSOLE", "wrap", False),
    ],
)
def test_what_the_spec_decides_is_not_the_environments(name: str, value: str, kept: bool) -> None:
    found = client_environment({name: value, "PATH": "/bin"}, FOLDER)
    assert found["PATH"] == "/bin"
    assert found.get(name) == (value if kept else None)


def test_the_clients_files_are_below_the_run_directory_and_nothing_goes_to_third_parties() -> None:
    found = client_environment({"WANDB_CACHE_DIR": "/elsewhere"}, FOLDER)
    folders = {name: value for name, value in found.items() if name.endswith("_DIR")}
    assert set(folders) == {"WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"}
    assert all(value.startswith(f"{FOLDER}/.client/") for value in folders.values())
    assert found["WANDB_ERROR_REPORTING"] == "false"
