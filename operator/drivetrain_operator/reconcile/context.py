"""What every rule looks at: the snapshot, the status as it stands in this pass, the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from drivetrain_api.status import ConditionType, phase_of
from drivetrain_operator.manifests.names import attempt_name
from drivetrain_operator.reconcile.views import JobConditionType

if TYPE_CHECKING:
    from datetime import datetime

    from drivetrain_api.status import TrainingRunStatus
    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_operator.reconcile.decision import EventRecord
    from drivetrain_operator.reconcile.snapshot import Observed
    from drivetrain_operator.reconcile.views import ConfigMapView, JobView, PodView

OVERDUE_MARGIN: Final = timedelta(seconds=30)
"""A pod that still terminates this long after its grace period is on a lost node."""


@dataclass(frozen=True)
class Context:
    """One look at a run; properties are computed once, the object never changes."""

    observed: Observed
    status: TrainingRunStatus
    now: datetime
    """UTC, whole seconds: what is stamped into the status."""

    def with_status(self, **changes: Any) -> Context:  # noqa: ANN401 - fields of the status
        """The same look with fields of the status replaced."""
        return replace(self, status=self.status.model_copy(update=changes))

    @property
    def spec(self) -> TrainingRunSpec:
        """The spec; only rules that run on accepted specs ask for it."""
        spec = self.observed.run.spec
        assert spec is not None, "a rule for accepted specs ran on a refused one"
        return spec

    @property
    def uid(self) -> str:
        """UID of the run."""
        return self.observed.run.metadata.uid

    @property
    def run_name(self) -> str:
        """Name of the run."""
        return self.observed.run.metadata.name

    @property
    def terminal(self) -> bool:
        """Whether the run is over for good."""
        return phase_of(self.status).terminal

    @property
    def ended(self) -> bool:
        """Whether the attempt of the status is over; so it is before the first."""
        history = self.status.history
        return self.status.attempt == 0 or bool(
            history and history[-1].attempt == self.status.attempt
        )

    @property
    def wanted(self) -> int | None:
        """The one attempt that may have pods now."""
        held = self.terminal or self.ended or self.status.is_true(ConditionType.SUSPENDED)
        return None if held else self.status.attempt

    @cached_property
    def jobs(self) -> tuple[JobView, ...]:
        """The run's own Jobs, by attempt: owned by its UID, not merely named or labelled so."""
        own = (
            job
            for job in self.observed.jobs
            if job.meta.controller_uid == self.uid
            and job.meta.attempt is not None
            and job.meta.name == attempt_name(self.run_name, job.meta.attempt)
        )
        return tuple(sorted(own, key=lambda job: job.meta.attempt or 0))

    @cached_property
    def pods(self) -> tuple[PodView, ...]:
        """The run's own pods, by attempt and index.

        Their Job may be gone, so they are known by the run's UID on their label and their
        attempt's Job as controller; without any controller, that Job was orphan-deleted.
        """
        own = (
            pod
            for pod in self.observed.pods
            if pod.meta.run_uid == self.uid
            and pod.meta.attempt is not None
            and (pod.meta.controller_kind, pod.meta.controller_name)
            in (("Job", attempt_name(self.run_name, pod.meta.attempt)), ("", ""))
        )
        return tuple(sorted(own, key=lambda pod: (pod.meta.attempt, pod.index or 0, pod.meta.name)))

    @cached_property
    def config_maps(self) -> tuple[ConfigMapView, ...]:
        """The run's own ConfigMaps, by name."""
        own = (view for view in self.observed.config_maps if view.meta.controller_uid == self.uid)
        return tuple(sorted(own, key=lambda view: view.meta.name))

    @cached_property
    def job(self) -> JobView | None:
        """The Job of the status' attempt; another one of its name is not it."""
        known = self.status.job_uid
        return next(
            (
                job
                for job in self.jobs
                if job.meta.attempt == self.status.attempt and known in (None, job.meta.uid)
            ),
            None,
        )

    @cached_property
    def attempt_pods(self) -> tuple[PodView, ...]:
        """Pods of the status' attempt."""
        return tuple(pod for pod in self.pods if pod.meta.attempt == self.status.attempt)

    @property
    def awaits_job(self) -> bool:
        """Whether the wanted attempt's Job was never seen."""
        return self.wanted is not None and self.status.job_uid is None and self.job is None

    @property
    def succeeding(self) -> bool:
        """Whether all ranks of the attempt are done, so that its Job is about to be Complete."""
        if self.job is None:
            return False
        failed = self.job.condition(JobConditionType.FAILURE_TARGET, JobConditionType.FAILED)
        done = self.job.condition(JobConditionType.SUCCESS_CRITERIA_MET, JobConditionType.COMPLETE)
        return done is not None and failed is None

    def leftovers(self, but: int | None = None) -> bool:
        """Whether a Job or a live pod of any attempt other than `but` is there."""
        return any(job.meta.attempt != but for job in self.jobs) or any(
            pod.live and pod.meta.attempt != but for pod in self.pods
        )

    def overdue(self, pod: PodView) -> bool:
        """Whether a pod terminates for longer than its grace period and the margin."""
        moment = overdue_at(pod)
        return moment is not None and moment <= self.now


def overdue_at(pod: PodView) -> datetime | None:
    """When a terminating pod is taken for lost with its node; None while it does not end.

    The object of a pod that is over hangs there as well, once no kubelet takes it away.
    """
    if pod.meta.deletion_at is None:
        return None
    return pod.meta.deletion_at + OVERDUE_MARGIN


@dataclass(frozen=True)
class Transition:
    """A rule's verdict: the status that follows, and what to tell the user about it."""

    status: TrainingRunStatus
    event: EventRecord | None = None


Rule: TypeAlias = Callable[[Context], Transition | None]
"""A pure check; a verdict that equals the status at hand counts as none."""

Timer: TypeAlias = Callable[[Context], "datetime | None"]
"""When time alone may change a rule's verdict; None where it never does."""
