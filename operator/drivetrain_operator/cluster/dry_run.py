"""What only the API server knows about a `podTemplate`: a strict dry run of the Job."""

from __future__ import annotations

from collections import OrderedDict
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_api.status import ConditionType, phase_of
from drivetrain_operator.cluster.client import Method
from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    ApiError,
    ThrottledError,
    UnavailableError,
)
from drivetrain_operator.cluster.job_refusal import refusals_of
from drivetrain_operator.cluster.resources import JOBS
from drivetrain_operator.cluster.status_writer import FIELD_MANAGER
from drivetrain_operator.manifests.job import attempt_job
from drivetrain_operator.reconcile.accept import refusals

if TYPE_CHECKING:
    from drivetrain_api.errors import Violation
    from drivetrain_operator.cluster.client import Cluster
    from drivetrain_operator.manifests.kinds import Manifest
    from drivetrain_operator.manifests.settings import Settings
    from drivetrain_operator.reconcile.snapshot import RunView

REMEMBERED: Final = 10_000
"""Runs whose verdict is remembered; the longest unused are forgotten."""
_PARAMS: Final = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": FIELD_MANAGER}
_log = structlog.get_logger(__name__)


class JobDryRun:
    """Asks the API server once a generation whether it would take a run's Job.

    Args:
        cluster: The API server.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._verdicts: OrderedDict[str, tuple[int, tuple[Violation, ...]]] = OrderedDict()

    async def violations(self, run: RunView, settings: Settings) -> tuple[Violation, ...]:
        """What the server refuses about the run's Job; empty for a spec that is fine.

        Nothing is asked about a spec that is refused already, or was accepted before in
        this generation, or about a run that is over. A quota, a policy or a webhook that
        is in the way says nothing about the spec: it shows when the Job is created.

        Args:
            run: The run.
            settings: The administrator's defaults for manifests.

        Raises:
            ThrottledError: to be asked again.
            UnavailableError: likewise.
        """
        if run.spec is None or _settled(run) or refusals(run):
            return ()
        uid, generation = run.metadata.uid, run.metadata.generation
        known = self._verdicts.get(uid)
        if known is None or known[0] != generation:
            found = await self._ask(run, settings)
            if found is None:
                return ()
            known = (generation, found)
            self._verdicts[uid] = known
        self._verdicts.move_to_end(uid)
        while len(self._verdicts) > REMEMBERED:
            self._verdicts.popitem(last=False)
        return known[1]

    async def _ask(self, run: RunView, settings: Settings) -> tuple[Violation, ...] | None:
        """The server's verdict; None where it gave none."""
        assert run.spec is not None
        whole = run.with_spec(run.spec)
        job = attempt_job(whole, run.status.attempt + 1, settings)
        try:
            await self._send(run, job)
        except AlreadyExistsError:
            return ()  # found out after everything else was checked
        except ThrottledError:
            raise
        except UnavailableError as error:
            if error.status != HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            _log_unknown(run, error)
            return None
        except ApiError as error:
            found = refusals_of(error, job, run.spec)
            if not found:
                _log_unknown(run, error)
            return found or None
        return ()

    async def _send(self, run: RunView, job: Manifest) -> None:
        await self._cluster.request(
            Method.POST, JOBS, namespace=run.metadata.namespace, params=_PARAMS, body=job
        )


def _settled(run: RunView) -> bool:
    """Whether the answer cannot matter any more."""
    accepted = run.status.condition(ConditionType.ACCEPTED)
    return (
        run.metadata.deletion_timestamp is not None
        or phase_of(run.status).terminal
        or (
            run.status.is_true(ConditionType.ACCEPTED)
            and accepted is not None
            and accepted.observed_generation == run.metadata.generation
        )
    )


def _log_unknown(run: RunView, error: ApiError) -> None:
    """An answer that is about something else: the webhook of a policy that fails, say."""
    _log.warning(
        "dry run without a verdict",
        run=run.metadata.name,
        namespace=run.metadata.namespace,
        error=str(error),
    )
