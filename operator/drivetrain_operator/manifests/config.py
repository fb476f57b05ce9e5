"""ConfigMaps of a run: what an attempt reads, and what it reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api import labels
from drivetrain_api.attempt import AttemptSpec
from drivetrain_operator.manifests.metadata import child_metadata
from drivetrain_operator.manifests.names import (
    PROGRESS_KEY,
    RUN_JSON,
    account_name,
    attempt_name,
    progress_name,
)

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.manifests.kinds import Manifest


def run_json(run: TrainingRun, attempt: int) -> str:
    """The attempt's `AttemptSpec` as JSON: aliases as on the wire, unset fields left out.

    Raises:
        ValueError: the run has no creation time, so it never came from a store.
    """
    if run.metadata.creation_timestamp is None:
        raise ValueError(f"TrainingRun {run.metadata.name} has no creationTimestamp")
    spec = AttemptSpec(
        name=run.metadata.name,
        namespace=run.metadata.namespace,
        uid=run.metadata.uid,
        attempt=attempt,
        created=run.metadata.creation_timestamp,
        spec=run.spec,
    )
    return spec.model_dump_json(by_alias=True, exclude_unset=True)


def attempt_config_map(run: TrainingRun, attempt: int) -> Manifest:
    """The immutable ConfigMap that an attempt's pods mount."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(run, attempt_name(run.metadata.name, attempt), attempt),
        "immutable": True,
        "data": {RUN_JSON: run_json(run, attempt)},
    }


def progress_config_map(run: TrainingRun) -> Manifest:
    """The ConfigMap that the launcher patches; made beforehand, so that it need not create."""
    metadata = child_metadata(run, progress_name(run.metadata.name))
    metadata["labels"][labels.PROGRESS] = account_name(run.metadata.name)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {PROGRESS_KEY: ""},
    }
