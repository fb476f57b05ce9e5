"""TrainingRuns as the plugin reads them: leniently, for the operator may be newer."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from drivetrain_api import labels
from drivetrain_api.status import Phase, TrainingRunStatus
from drivetrain_operator.cluster.client import Method
from drivetrain_operator.cluster.errors import ForbiddenError, NotFoundError
from drivetrain_operator.cluster.resources import PODS, TRAINING_RUNS
from drivetrain_operator.kubectl.failure import Failure, not_installed
from drivetrain_operator.reconcile.conditions import MESSAGE_LIMIT
from drivetrain_operator.reconcile.fields import count, items, mapping, text, time
from drivetrain_operator.reconcile.views import PodView

if TYPE_CHECKING:
    from drivetrain_operator.cluster.resources import Resource
    from drivetrain_operator.kubectl.session import Session
    from drivetrain_operator.reconcile.fields import Object

CHUNK: Final = 500
"""Objects that a list asks for at a time."""
_SHOWN: Final = 8
"""Names that an error lists."""


@dataclass(frozen=True)
class Run:
    """A TrainingRun: what the API server holds, and its status as we understand it."""

    raw: dict[str, Any]
    status: TrainingRunStatus

    @classmethod
    def from_object(cls, raw: dict[str, Any]) -> Run:
        """Read a TrainingRun; fields of a newer operator are passed over.

        Raises:
            Failure: the status cannot be understood.
        """
        try:
            status = TrainingRunStatus.model_validate(raw.get("status") or {}, extra="ignore")
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = ".".join(str(part) for part in first["loc"])
            name = text(mapping(raw, "metadata"), "name")
            raise Failure(
                f"TrainingRun {name}: status.{path}: {first['msg']}",
                "is the operator newer than this plugin? -o yaml shows it as it is",
            ) from None
        return cls(raw, status)

    @classmethod
    def readable(cls, raw: dict[str, Any]) -> Run:
        """As `from_object`; of a status that cannot be understood, the phase alone."""
        try:
            return cls.from_object(raw)
        except Failure as failure:
            told = text(mapping(raw, "status"), "phase")
            phase = Phase(told) if told in set(Phase) else None
            words = failure.lines[0].partition(": ")[2]
            return cls(raw, TrainingRunStatus(phase=phase, message=words[:MESSAGE_LIMIT]))

    @property
    def name(self) -> str:
        """Its name."""
        return text(mapping(self.raw, "metadata"), "name")

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return text(mapping(self.raw, "metadata"), "namespace")

    @property
    def uid(self) -> str:
        """Its UID."""
        return text(mapping(self.raw, "metadata"), "uid")

    @property
    def created_at(self) -> datetime | None:
        """When it was created."""
        return time(mapping(self.raw, "metadata"), "creationTimestamp")

    @property
    def annotations(self) -> Object:
        """Its annotations."""
        return mapping(mapping(self.raw, "metadata"), "annotations")

    @property
    def spec(self) -> Object:
        """The spec as it stands in the API server, defaults not applied."""
        return mapping(self.raw, "spec")

    @property
    def phase(self) -> Phase:
        """Pending before the operator has seen it."""
        return self.status.phase or Phase.PENDING

    @property
    def nodes(self) -> int:
        """Pods of an attempt."""
        return count(mapping(self.spec, "topology"), "nodes") or 1

    @property
    def ranks_per_node(self) -> int:
        """Ranks of a pod."""
        return count(mapping(self.spec, "topology"), "ranksPerNode") or 1

    @property
    def suspend(self) -> bool:
        """Whether it is asked to hold."""
        return self.spec.get("suspend") is True


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


async def listed(
    session: Session,
    resource: Resource,
    *,
    namespace: str | None,
    label_selector: str = "",
    field_selector: str = "",
) -> list[dict[str, Any]]:
    """All objects of a collection, in chunks; None lists every namespace."""
    params = {"limit": str(CHUNK)}
    if label_selector:
        params["labelSelector"] = label_selector
    if field_selector:
        params["fieldSelector"] = field_selector
    found: list[dict[str, Any]] = []
    while True:
        answer = await session.cluster.request(
            Method.GET, resource, namespace=namespace, params=params
        )
        found.extend(dict(item) for item in items(answer, "items"))
        token = text(mapping(answer, "metadata"), "continue")
        if not token:
            return found
        params["continue"] = token


async def all_runs(
    session: Session, *, every_namespace: bool = False, label_selector: str = ""
) -> list[dict[str, Any]]:
    """TrainingRuns as the API server holds them.

    Raises:
        Failure: it serves none.
    """
    namespace = None if every_namespace else session.namespace
    try:
        return await listed(
            session, TRAINING_RUNS, namespace=namespace, label_selector=label_selector
        )
    except NotFoundError:
        raise not_installed(session.cluster.host) from None


async def get_raw(session: Session, name: str) -> dict[str, Any]:
    """One TrainingRun as the API server holds it.

    Raises:
        Failure: there is none of that name; says which are close.
    """
    try:
        return await session.cluster.request(
            Method.GET, TRAINING_RUNS, namespace=session.namespace, name=name
        )
    except NotFoundError:
        raise await _missing(session, name) from None


async def get_run(session: Session, name: str) -> Run:
    """One TrainingRun.

    Raises:
        Failure: there is none of that name, or its status cannot be understood.
    """
    return Run.from_object(await get_raw(session, name))


async def _missing(session: Session, name: str) -> Failure:
    line = f"there is no TrainingRun {name!r} in namespace {session.namespace}"
    try:
        known = sorted(text(mapping(raw, "metadata"), "name") for raw in await all_runs(session))
    except ForbiddenError:
        return Failure(line, "kubectl get trainingruns -A lists those that you may see")
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return Failure(line, f"did you mean {' or '.join(close)}?")
    if not known:
        elsewhere = await _elsewhere(session, name)
        return Failure(line, elsewhere or "it has none; name another one by --namespace")
    shown = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    return Failure(line, await _elsewhere(session, name) or f"there are: {shown}")


async def _elsewhere(session: Session, name: str) -> str:
    """Where a run of that name is, as far as the user may look."""
    try:
        raws = await listed(
            session, TRAINING_RUNS, namespace=None, field_selector=f"metadata.name={name}"
        )
    except ForbiddenError:
        return ""
    places = sorted(text(mapping(raw, "metadata"), "namespace") for raw in raws)
    return f"there is one in namespace {' and '.join(places[:_SHOWN])}" if places else ""


async def pods_of(session: Session, run: Run) -> tuple[PodView, ...]:
    """Pods of the run's current attempt, by index."""
    raws = await listed(
        session,
        PODS,
        namespace=run.namespace,
        label_selector=f"{labels.RUN_UID}={run.uid},{labels.ATTEMPT}={run.status.attempt}",
    )
    views = (PodView.from_object(raw) for raw in raws)
    return tuple(sorted(views, key=lambda pod: (pod.index or 0, pod.meta.name)))
