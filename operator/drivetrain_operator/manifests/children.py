"""All children of an attempt, in the order in which they are created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_operator.manifests.config import attempt_config_map, progress_config_map
from drivetrain_operator.manifests.job import attempt_job
from drivetrain_operator.manifests.kinds import Child, ChildKind, Manifest
from drivetrain_operator.manifests.rbac import role, role_binding, service_account
from drivetrain_operator.manifests.service import headless_service
from drivetrain_operator.manifests.settings import Settings
from drivetrain_operator.manifests.storage import claim

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRun


def children(run: TrainingRun, attempt: int, settings: Settings | None = None) -> tuple[Child, ...]:
    """What attempt `attempt` needs, what belongs to the whole run included.

    The Job comes last: once it is seen, everything else was made. The ConfigMaps, which
    are watched, come before what is not: a Service or an account without its ConfigMap
    is never left behind unnoticed.
    """
    settings = settings or Settings()
    made = claim(run)
    ordered: list[tuple[ChildKind, Manifest]] = [
        *([(ChildKind.CLAIM, made)] if made is not None else []),
        (ChildKind.CONFIG_MAP, progress_config_map(run)),
        (ChildKind.SERVICE_ACCOUNT, service_account(run)),
        (ChildKind.ROLE, role(run)),
        (ChildKind.ROLE_BINDING, role_binding(run)),
        (ChildKind.CONFIG_MAP, attempt_config_map(run, attempt)),
        (ChildKind.SERVICE, headless_service(run, attempt, settings)),
        (ChildKind.JOB, attempt_job(run, attempt, settings)),
    ]
    return tuple(Child(kind, manifest["metadata"]["name"], manifest) for kind, manifest in ordered)
