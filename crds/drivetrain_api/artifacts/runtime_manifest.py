"""``runtime_manifest`` of run_summary.json: the tensor runtime's evidence, schema version 1.

It is begun before a collector starts and completed at the run's end. Stable fields are typed
exactly; a stable field is never renamed, removed, retyped, or changed in unit or null meaning
within the version. Everything else is an experimental diagnostic: a later minor release may
add or drop it, and readers ignore what they do not know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from drivetrain_api.artifacts.base import ArtifactError, ArtifactModel
from drivetrain_api.artifacts.mps_evidence import MpsEvidence
from drivetrain_api.base import Flag, Measure, PositiveInt, ShortText, StepOffset, Text

RUNTIME_MANIFEST_VERSION: Final = 1
"""Moves independently of the metric schema's and of the soak artifact's."""

_NESTING: Final = 32
"""Levels of an opaque section; deeper ones are refused, whatever wrote them."""

Opaque = Annotated[dict[ShortText, JsonValue], Field(max_length=256)]
Reason = Annotated[str, Field(strict=True, min_length=1, max_length=1024)]
Version = Annotated[
    int, Field(strict=True, ge=RUNTIME_MANIFEST_VERSION, le=RUNTIME_MANIFEST_VERSION)
]
DeviceLabel = Annotated[str, Field(strict=True, min_length=1, max_length=64)]


class KnobLimits(ArtifactModel):
    """What was asked for, and what holds, of one setting."""

    configured: PositiveInt | None
    """What the manifest or a preset set; null where neither did."""
    default: PositiveInt | None
    """What holds where nothing is set; null where that depends on another setting."""
    effective: PositiveInt
    """What the run uses."""
    maximum: PositiveInt
    """The most that is allowed."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.effective > self.maximum:
            raise ValueError(f"effective {self.effective} is above maximum {self.maximum}")
        if self.configured is not None and self.configured != self.effective:
            raise ValueError(f"configured {self.configured} is not effective {self.effective}")
        return self


class InferenceFlightEvidence(ArtifactModel):
    """Inference requests under way, as the collector last reported them.

    The maxima are since the report before the last one: see `ReplayIngressEvidence` for the
    other window.
    """

    queue_depth: StepOffset
    """Requests that the learner had not answered."""
    publication_lag: StepOffset
    """Ticks between the newest request and the newest answer."""
    max_in_flight: StepOffset
    """Most requests without a taken answer since the previous successfully published report."""
    max_publication_lag: StepOffset
    """Greatest lag, in ticks, since the previous successfully published report."""


class ReplayIngressEvidence(ArtifactModel):
    """The line of row chunks between collector and replay, counted since the run's start.

    Chunks are counted, not whole vectors: with slot rows below the number of environments a
    vector is several of them.
    """

    ingress_depth: StepOffset
    """Slots of the line."""
    ingress_slot_rows: StepOffset
    """Rows of a slot."""
    published_sequence: StepOffset
    """Chunks published."""
    release_sequence: StepOffset
    """Chunks taken out."""
    occupancy: StepOffset
    """Chunks in the line."""
    high_water_occupancy: StepOffset
    """Most chunks in the line at once, cumulative over the run."""
    backpressure_waits: StepOffset
    """Chunks that had to wait for a free slot."""
    backpressure_wait_s: Measure
    """Seconds waited for free slots."""
    early_returns: StepOffset
    """Writes that ended before all their chunks were published."""
    dropped_batches: StepOffset
    """Chunks that were not published for that reason."""
    closed_returns: StepOffset
    """Early returns because the line was closed."""
    stop_returns: StepOffset
    """Early returns because the writer was asked to stop."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.release_sequence > self.published_sequence:
            raise ValueError(
                f"release_sequence {self.release_sequence} is ahead of published_sequence "
                f"{self.published_sequence}"
            )
        for name in ("occupancy", "high_water_occupancy"):
            if getattr(self, name) > self.ingress_depth:
                raise ValueError(
                    f"{name} {getattr(self, name)} is above ingress_depth {self.ingress_depth}"
                )
        return self


class InferenceMemoryEvidence(ArtifactModel):
    """The bounded budget of a CUDA inference ring; absent for a ring in host memory."""

    model_config = ConfigDict(extra="allow")

    ipc_event_count: StepOffset
    """CUDA IPC events that the ring opened."""
    # Everything else of the budget is an experimental diagnostic.


class SoundnessEvidence(ArtifactModel):
    """Transitions of a rank that could not be trained on, since the attempt's start."""

    invalid_rows: StepOffset
    """Those left out of the replay."""
    by_reason: Annotated[dict[ShortText, StepOffset], Field(max_length=64)]
    """Worlds by what was wrong with them: the simulator's own warnings by name, of which some
    (`CONTACTFULL`) leave the row valid, and `nonfinite` for what it did not report."""
    first: Text | None = None
    """The first of them: tick, environment, term and value; null where there was none."""


class OptimizationState(ArtifactModel):
    """One optimisation of a physics backend; what else it tells is its own."""

    model_config = ConfigDict(extra="allow")

    requested: Flag
    """Whether the run asked for it."""
    enabled: Flag
    """Whether it is in use."""
    disable_reason: Reason | None
    """Why not; null exactly where it is enabled."""

    @model_validator(mode="after")
    def _explained(self) -> Self:
        if self.enabled != (self.disable_reason is None):
            raise ValueError(
                "disable_reason must be null where enabled is true, and say why where it is false; "
                f"got enabled {self.enabled}, disable_reason {self.disable_reason!r}"
            )
        return self


class BackendDiagnostics(ArtifactModel):
    """The physics backend's snapshot of its tensor runtime."""

    model_config = ConfigDict(extra="allow")

    available: Flag
    """Whether the backend tells anything."""
    unavailable_reason: Reason | None = None
    """Why it does not."""
    backend_type: Annotated[str, Field(strict=True, min_length=1, max_length=63)] | None = None
    """What kind of backend tells it."""
    diagnostics: Annotated[dict[ShortText, OptimizationState], Field(max_length=64)] | None = None
    """Optimisation -> its state, CUDA graphs among them."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        told = self.backend_type is not None and self.diagnostics is not None
        untold = self.backend_type is None and self.diagnostics is None
        if self.available and not (told and self.unavailable_reason is None):
            raise ValueError("available needs backend_type and diagnostics, no unavailable_reason")
        if not self.available and not (untold and self.unavailable_reason is not None):
            raise ValueError("unavailable needs unavailable_reason, no backend_type or diagnostics")
        return self

    @classmethod
    def of(cls, mapping: object) -> Self:
        """Read a section, in a manifest or (of an algorithm that has none) by itself.

        Raises:
            ArtifactError: naming each field that is missing or wrong.
        """
        try:
            return cls.model_validate(mapping, extra="ignore")
        except ValidationError as error:
            found = "; ".join(_line(detail["loc"], detail["msg"]) for detail in error.errors())
            raise ArtifactError(f"backend_diagnostics: {found}") from error

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _only_set(self, handler)


class RuntimeManifest(ArtifactModel):
    """The manifest of a run that is under way, or ended before it could be completed.

    A field that is not known yet has no key. `CompletedManifest` is the run's that reached
    its end.
    """

    schema_version: Version
    """Version of this section; a reader refuses any other, and a manifest without one."""
    inference_ring_capacity: PositiveInt
    """Slots of the inference ring."""
    collector_metrics_interval: PositiveInt
    """Ticks between two reports of the collector."""
    collector_backend_device: DeviceLabel | None = None
    """Accelerator that the physics backend is bound to; null where it is bound to none."""
    inference_flight: InferenceFlightEvidence | None = None
    """Requests under way at the collector's last report."""
    replay_ingress: ReplayIngressEvidence | None = None
    """Counters of rank 0's replay ingress."""
    inference_memory_budget: InferenceMemoryEvidence | None = None
    """Budget of the CUDA inference ring."""
    tensor_memory_budget: Opaque | None = None
    """Combined budget of inference, replay, ingress, batches and workspace. Experimental."""
    runtime_limits: Annotated[dict[ShortText, KnobLimits], Field(max_length=32)] | None = None
    """Configured, default, effective and maximum of each setting. Experimental."""
    devices: Annotated[dict[ShortText, Text], Field(max_length=16)] | None = None
    """Learner, collector tensors and the transport derived from them. Experimental."""
    cuda_process_sharing: MpsEvidence | None = None
    """Evidence of CUDA MPS; there exactly where the run asked for it. Experimental."""
    backend_diagnostics: BackendDiagnostics | None = None
    """The physics backend's own. Experimental, but refused where it is malformed."""
    soundness: SoundnessEvidence | None = None
    """Rows left out of the replay, and why. Experimental."""
    shutdown: Opaque | None = None
    """How the run was taken down; opaque. Experimental."""

    @field_validator(
        "inference_flight",
        "replay_ingress",
        "inference_memory_budget",
        "tensor_memory_budget",
        "runtime_limits",
        "devices",
        "cuda_process_sharing",
        "backend_diagnostics",
        "soundness",
        mode="before",
    )
    @classmethod
    def _absent_not_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("is left out where there is none, not null")
        return value

    @model_validator(mode="before")
    @classmethod
    def _finite(cls, given: object) -> object:
        _refuse_nonfinite(given, ())
        return given

    @model_serializer(mode="wrap")
    def _known(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _only_set(self, handler)

    def as_mapping(self) -> dict[str, JsonValue]:
        """The section as it stands in run_summary.json."""
        return self.model_dump(mode="json")

    @classmethod
    def of(cls, mapping: object) -> Self:
        """Read a section; fields that a later minor version added are ignored.

        Raises:
            ArtifactError: naming each field that is missing or wrong, the version among them.
        """
        try:
            return cls.model_validate(mapping, extra="ignore")
        except ValidationError as error:
            found = "; ".join(_line(detail["loc"], detail["msg"]) for detail in error.errors())
            raise ArtifactError(f"not a runtime manifest of version 1: {found}") from error


class CompletedManifest(RuntimeManifest):
    """The manifest of a run that reached its end: every stable field is there."""

    collector_backend_device: DeviceLabel | None
    """Accelerator that the physics backend is bound to; the key is required, and null only
    where it is bound to none."""
    inference_flight: InferenceFlightEvidence
    """Requests under way at the collector's last report."""
    replay_ingress: ReplayIngressEvidence
    """Counters of rank 0's replay ingress."""


def read_manifest(mapping: object, *, completed: bool) -> RuntimeManifest:
    """The runtime manifest of a run summary.

    Args:
        mapping: `runtime_manifest` of the summary.
        completed: Whether the run reached its end, which needs every stable field.

    Raises:
        ArtifactError: see `RuntimeManifest.of`.
    """
    return (CompletedManifest if completed else RuntimeManifest).of(mapping)


def _only_set(model: ArtifactModel, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    """A key for what was told alone: an absent key and null mean different things here."""
    extras = model.model_extra or {}
    return {
        name: value
        for name, value in handler(model).items()
        if name in model.model_fields_set or name in extras
    }


def _line(location: tuple[str | int, ...], message: str) -> str:
    place = ".".join(str(part) for part in location)
    words = message.removeprefix("Value error, ")
    return f"{place}: {words}" if place else words


def _refuse_nonfinite(value: object, path: tuple[str, ...]) -> None:
    """Numbers of opaque sections are evidence as well: NaN and infinities say nothing."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{'.'.join(path)} must be finite; got {value}")
    if len(path) > _NESTING:
        raise ValueError(f"{'.'.join(path[:3])}... is nested more than {_NESTING} levels")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_nonfinite(item, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_nonfinite(item, (*path, str(index)))
