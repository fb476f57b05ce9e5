"""The snapshot that a reconcile pass looks at: one run and everything around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_api.compose import parse_run
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.status import TrainingRunStatus
from drivetrain_api.trainingrun import ObjectMeta, TrainingRun, TrainingRunSpec
from drivetrain_operator.reconcile.fields import mapping, text

if TYPE_CHECKING:
    from datetime import datetime

    from drivetrain_operator.manifests.kinds import ChildKind
    from drivetrain_operator.reconcile.fields import Object
    from drivetrain_operator.reconcile.views import ConfigMapView, JobEvent, JobView, PodView


@dataclass(frozen=True)
class RunView:
    """A TrainingRun, whether its spec can be read or not."""

    metadata: ObjectMeta
    spec: TrainingRunSpec | None
    """None where the spec is refused."""
    status: TrainingRunStatus
    refusals: tuple[Violation, ...] = ()
    """Why the spec is refused; whoever observes may add what else it finds (a dry run)."""

    def with_spec(self, spec: TrainingRunSpec) -> TrainingRun:
        """The run as the builders take it."""
        return TrainingRun(metadata=self.metadata, spec=spec)

    @classmethod
    def of(cls, run: TrainingRun) -> RunView:
        """The view of a run that was parsed already."""
        return cls(run.metadata, run.spec, run.status)

    @classmethod
    def from_object(cls, obj: Object) -> RunView:
        """Read a TrainingRun; a refused spec is kept as its violations.

        Raises:
            pydantic.ValidationError: metadata or status cannot be read. A status is never
                taken for empty: a finished run would start again.
        """
        metadata = _metadata(obj)
        status = TrainingRunStatus.model_validate(obj.get("status") or {})
        try:
            run = parse_run({key: value for key, value in obj.items() if key != "status"})
        except SpecError as error:
            return cls(metadata, None, status, error.violations)
        return cls(metadata, run.spec, status)


def _metadata(obj: Object) -> ObjectMeta:
    """Metadata, whatever the name: one that is too long is refused with the spec."""
    meta = mapping(obj, "metadata")
    read = ObjectMeta.model_validate({**meta, "name": "unread"})
    return read.model_copy(update={"name": text(meta, "name")})


@dataclass(frozen=True)
class ForeignObject:
    """A name that a child needs and that another owner's object holds.

    Recorded by whoever applies `Create`, dropped by it once that create succeeds.
    """

    kind: ChildKind
    name: str
    seen_at: datetime
    """When the last try to create the child met it."""


@dataclass(frozen=True)
class RefusedChild:
    """A child that the API server would not have: a quota, a policy or a webhook said no.

    Recorded by whoever applies `Create`, dropped by it once that create succeeds.
    """

    kind: ChildKind
    name: str
    message: str
    """The server's words."""


@dataclass(frozen=True)
class Observed:
    """Everything that a decision rests on.

    Objects that carry this run's labels without being its own may be among the jobs, pods
    and ConfigMaps: they are recognised by their owner and left alone.
    """

    run: RunView
    jobs: tuple[JobView, ...] = ()
    """Jobs labelled with the run, of every attempt."""
    pods: tuple[PodView, ...] = ()
    """Pods labelled with the run, of every attempt."""
    config_maps: tuple[ConfigMapView, ...] = ()
    """ConfigMaps labelled with the run: one an attempt, and the progress of the run."""
    job_events: tuple[JobEvent, ...] = ()
    """Warning Events on these Jobs."""
    foreign: tuple[ForeignObject, ...] = ()
    """Names that were found taken."""
    refused: RefusedChild | None = None
    """The child that the last try to create met a refusal of; what comes after it is unmade."""
