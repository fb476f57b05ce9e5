"""Label, annotation and environment names, each with its writer and its values."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "drivetrain.dev"

RUN: Final = f"{PREFIX}/run"
"""Written by the builders on every child. Value: the run's name."""
RUN_UID: Final = f"{PREFIX}/run-uid"
"""Written by the builders on every child. Value: the run's UID."""
ATTEMPT: Final = f"{PREFIX}/attempt"
"""Written by the builders on an attempt's children. Value: a decimal from 1."""
PROGRESS: Final = f"{PREFIX}/progress"
"""Written by the builders on the progress ConfigMap. Value: the attempt's service account."""
SUITE: Final = f"{PREFIX}/suite"
"""Written by `drivetrain suite` on each TrainingRun. Value: the suite's name."""
VARIANT: Final = f"{PREFIX}/variant"
"""Written by `drivetrain suite` on each TrainingRun. Value: the name of its variant."""
RUN_IDX: Final = f"{PREFIX}/run-idx"
"""Written by `drivetrain suite` on each TrainingRun. Value: the index of its seed, from 0."""
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
"""Written by the builders on every child. Value: ``drivetrain``."""

ENV_SPEC_FILE: Final = "DRIVETRAIN_SPEC_FILE"
"""Path of the attempt's ``run.json`` (drivetrain_api.attempt.AttemptSpec)."""
ENV_STORAGE: Final = "DRIVETRAIN_STORAGE"
"""Root of the run's durable storage; relative ``training.log_root`` resolves against it."""
ENV_SCRATCH: Final = "DRIVETRAIN_SCRATCH"
"""A pod-private writable folder: outcome, progress and digest files."""
ENV_PROGRESS_SINK: Final = "DRIVETRAIN_PROGRESS_SINK"
"""Where the launcher publishes progress: ``file:<path>`` or ``configmap:<name>``."""
ENV_TERMINATION_LOG: Final = "DRIVETRAIN_TERMINATION_LOG"
"""Path of the termination message file; ``/dev/termination-log`` when unset."""

ENV_SERVICE_ACCOUNT: Final = "DRIVETRAIN_SERVICE_ACCOUNT"
"""Folder of the pod's account: token, ca.crt and namespace; Kubernetes' own mount when unset."""

SUSPENDED_BY: Final = f"{PREFIX}/suspended-by"
"""Annotation written by the command line when it sets ``spec.suspend``. Value: who asked."""
LOCAL_STORAGE: Final = f"{PREFIX}/local-storage"
"""Annotation written by the local store. Value: the absolute path that stands for the volume."""
ENV_LAUNCHER_PID: Final = "DRIVETRAIN_LAUNCHER_PID"
"""Written by the launcher for its ranks, which end with it. Value: its process id."""
ENV_MPS_PIPES: Final = "DRIVETRAIN_MPS_PIPES"
"""Written by the launcher for its ranks. Value: JSON list of [GPU UUID, MPS pipe directory]."""
ENV_WANDB_API_KEY: Final = "WANDB_API_KEY"
"""Read by the client of Weights & Biases; from the Secret that the run names."""
ENV_SOAK_SECONDS: Final = "DRIVETRAIN_SOAK_SECONDS"
"""Written by the launcher, and by the soak monitor, for the ranks. Value: seconds of training
after which the run ends, complete."""
