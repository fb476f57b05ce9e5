"""What is kept of an object: what decisions rest on, and nothing else.

A pod as the API server sends it takes some 50 KiB once it is parsed; its view takes one.
Two states of an object whose views are equal differ in nothing that a decision rests on,
so that nobody need be told of the change.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from drivetrain_api import labels
from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.cluster.resources import CONFIG_MAPS, EVENTS, JOBS, PODS
from drivetrain_operator.reconcile.fields import count, mapping, text
from drivetrain_operator.reconcile.views import ConfigMapView, JobEvent, JobView, PodView

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_operator.cluster.resources import Resource
    from drivetrain_operator.reconcile.fields import Object

View: TypeAlias = JobView | PodView | ConfigMapView | JobEvent

CHILD_SELECTOR: Final = labels.RUN
"""Label selector of the Jobs, pods and ConfigMaps that belong to some run."""
EVENT_SELECTOR: Final = "involvedObject.kind=Job,type=Warning"
"""Field selector of the Events that are read."""

_ATTEMPT: Final = re.compile(r"(?P<run>.+)-a[1-9][0-9]*")
"""Name of an attempt's Job: `manifests.names.attempt_name`."""
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_VIEWS: Final[dict[Resource, Callable[[Object], View]]] = {
    JOBS: JobView.from_object,
    PODS: PodView.from_object,
    CONFIG_MAPS: ConfigMapView.from_object,
    EVENTS: JobEvent.from_object,
}


def view_of(resource: Resource, obj: Object) -> View:
    """What is kept of a child, or of an Event.

    Raises:
        KeyError: nothing is kept of that resource.
        ValueError: the object holds what no API server lets in.
    """
    return _VIEWS[resource](obj)


def run_of(resource: Resource, obj: Object) -> RunKey | None:
    """The run that an object is about; None where it is about none."""
    metadata = mapping(obj, "metadata")
    if resource == EVENTS:
        about = mapping(obj, "involvedObject")
        wanted = text(obj, "type") == "Warning" and text(about, "kind") == "Job"
        match = _ATTEMPT.fullmatch(text(about, "name")) if wanted else None
        name = match["run"] if match else ""
    else:
        name = text(mapping(metadata, "labels"), labels.RUN)
    return RunKey(text(metadata, "namespace"), name) if name else None


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A TrainingRun as compact JSON: parsed again for each look, which is cheap."""

    uid: str
    generation: int
    version: str
    """``resourceVersion``; kept apart, so that equal contents compare as equal."""
    phase: str
    """``status.phase``; empty before the first status."""
    content: bytes

    @classmethod
    def from_object(cls, obj: Object) -> KeptRun:
        """Drop what is nobody's business: field managers, kubectl's copy, the version."""
        metadata = dict(mapping(obj, "metadata"))
        metadata.pop("managedFields", None)
        version = metadata.pop("resourceVersion", "")
        annotations = dict(mapping(metadata, "annotations"))
        if annotations.pop(_LAST_APPLIED, None) is not None:
            metadata["annotations"] = annotations
        return cls(
            uid=text(metadata, "uid"),
            generation=count(metadata, "generation"),
            version=version if isinstance(version, str) else "",
            phase=text(mapping(obj, "status"), "phase"),
            content=json.dumps({**obj, "metadata": metadata}, separators=(",", ":")).encode(),
        )

    def same_as(self, other: KeptRun) -> bool:
        """Whether the two differ in their version at most."""
        return self.content == other.content

    def as_object(self) -> dict[str, Any]:
        """The object, its version included."""
        obj: dict[str, Any] = json.loads(self.content)
        obj["metadata"]["resourceVersion"] = self.version
        return obj
