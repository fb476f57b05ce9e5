"""The status of a run by server-side apply: whole, ours alone, and only on what was observed.

An apply takes away what an earlier one set and this one leaves out, and nothing else: a
field that somebody wrote by hand stays. Such a field is taken away by a second patch, so
that a status which was tampered with is as it was decided after one write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api.base import API_VERSION, KIND
from drivetrain_operator.cluster.client import ContentType, Method
from drivetrain_operator.cluster.errors import ApiError, UnavailableError
from drivetrain_operator.cluster.resources import TRAINING_RUNS
from drivetrain_operator.reconcile.fields import mapping, text

if TYPE_CHECKING:
    from drivetrain_api.status import TrainingRunStatus
    from drivetrain_api.trainingrun import ObjectMeta
    from drivetrain_operator.cluster.client import Cluster
    from drivetrain_operator.reconcile.fields import Object

FIELD_MANAGER: Final = "drivetrain-operator"
"""Who the API server says wrote a field."""
_UNDECLARED: Final = "field not declared in schema"
"""Of the server's answer, status 500, to an apply of a field that its definition lacks."""


class StatusWriter:
    """Writes statuses.

    Args:
        cluster: The API server.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def write(self, run: ObjectMeta, status: TrainingRunStatus) -> Object:
        """Make `status` the whole status of the run; an equal one moves nothing.

        Args:
            run: The metadata that was observed; its resourceVersion is the condition.
            status: What the status must be.

        Returns:
            The run as it is stored now.

        Raises:
            ConflictError: the run is not the one that was observed; nothing was written.
            NotFoundError: the run is gone.
            ApiError: nothing may have been written, or all of it.
        """
        wanted = wire(status)
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": run.name,
                "namespace": run.namespace,
                "resourceVersion": run.resource_version or "",
            },
            "status": wanted,
        }
        try:
            stored = await self._patch(run.name, run.namespace, ContentType.APPLY_PATCH, body)
        except UnavailableError as error:
            if _UNDECLARED not in error.message:
                raise
            raise ApiError(
                f"the TrainingRun definition in the cluster is older than this operator, "
                f"upgrade it: {error.message}",
                status=error.status,
                reason="OldDefinition",
            ) from error
        return await self._without_foreign(run, wanted, stored)

    async def _without_foreign(
        self, run: ObjectMeta, wanted: Mapping[str, Any], stored: Object
    ) -> Object:
        changes = corrections(wanted, mapping(stored, "status"))
        if not changes:
            return stored
        version = text(mapping(stored, "metadata"), "resourceVersion")
        body = {"metadata": {"resourceVersion": version}, "status": changes}
        return await self._patch(run.name, run.namespace, ContentType.MERGE_PATCH, body)

    async def _patch(
        self, name: str, namespace: str, content_type: ContentType, body: Object
    ) -> Object:
        params = {"fieldManager": FIELD_MANAGER}
        if content_type is ContentType.APPLY_PATCH:
            params["force"] = "true"
        return await self._cluster.request(
            Method.PATCH,
            TRAINING_RUNS,
            namespace=namespace,
            name=name,
            subresource="status",
            params=params,
            body=body,
            content_type=content_type,
        )


def wire(status: TrainingRunStatus) -> dict[str, Any]:
    """The status as JSON values; the schema refuses null, so what is unset is left out."""
    content: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return content


def corrections(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes `stored` equal `wanted`; empty where it does already."""
    changes: dict[str, Any] = {key: None for key in stored if key not in wanted}
    for key, value in wanted.items():
        found = stored.get(key)
        if isinstance(value, Mapping) and isinstance(found, Mapping):
            below = corrections(value, found)
            if below:
                changes[key] = below
        elif value != found:
            changes[key] = value
    return changes
