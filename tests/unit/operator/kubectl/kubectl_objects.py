"""TrainingRuns and pods as an API server returns them, at one fixed moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(type_: str, holds: bool, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": type_,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": ago(600),
        "observedGeneration": 1,
    }


def running_status() -> dict[str, Any]:
    """Of a run in its second attempt, as the operator writes it."""
    words = "attempt 2: 2 of 2 pods running"
    return {
        "phase": "Running",
        "message": words,
        "done": "42%",
        "conditions": [
            condition("Accepted", True, "Valid"),
            condition("Running", True, "PodsRunning", words),
        ],
        "attempt": 2,
        "ranks": 4,
        "restarts": 0,
        "disruptions": 1,
        "activeSeconds": 3600,
        "attemptStartedAt": ago(650),
        "attemptRunningAt": ago(600),
        "startedAt": ago(7200),
        "storage": "walk-storage",
        "progress": {
            "iteration": 410,
            "envSteps": 420_000,
            "targetEnvSteps": 1_000_000,
            "percent": 42,
            "stepsPerSecond": "8123.45",
            "meanReward": "812.437",
            "etaSeconds": 4260,
            "checkpointEnvSteps": 400_000,
            "at": ago(3),
        },
        "artifacts": [
            {
                "name": "last_checkpoint",
                "uri": "logs/fast_sac/hopper/x/checkpoints/400000",
                "sha256": "ab" * 32,
                "bytes": 5_500_000,
            }
        ],
        "history": [
            {
                "attempt": 1,
                "startedAt": ago(7200),
                "endedAt": ago(700),
                "reason": "Disrupted",
                "message": "pod walk-a1-1-x: EvictionByEvictionAPI: evicted",
                "counted": False,
            }
        ],
    }


def training_run(name: str = "walk", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": ago(7200),
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {
            "algo": {"name": "sac"},
            "task": {"name": "hopper"},
            "topology": {"nodes": 2, "ranksPerNode": 2},
            "storage": {"size": "1Gi"},
            "podTemplate": {"metadata": {"annotations": {"drop": None}}},
        },
        "status": running_status() | status,
    }


def pod(run: str = "walk", index: int = 0, attempt: int = 2, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{run}-a{attempt}-{index}-abcde",
            "uid": f"pod-{index}",
            "creationTimestamp": ago(640),
            "labels": {
                "drivetrain.dev/run": run,
                "drivetrain.dev/run-uid": f"uid-{run}",
                "drivetrain.dev/attempt": str(attempt),
            },
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        },
        "spec": {"nodeName": f"node-{index}"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        | status,
    }
