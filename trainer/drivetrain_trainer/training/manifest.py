"""The runtime manifest of a rank: begun before its collector boots, completed at its end."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from drivetrain_api.artifacts.runtime_manifest import (
    RUNTIME_MANIFEST_VERSION,
    BackendDiagnostics,
    InferenceFlightEvidence,
    InferenceMemoryEvidence,
    ReplayIngressEvidence,
    RuntimeManifest,
    SoundnessEvidence,
    read_manifest,
)
from drivetrain_api.budget import memory_budget, sizes_of
from drivetrain_api.compose import chosen
from drivetrain_trainer.runtime.devices import RingKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

    from drivetrain_api.artifacts.mps_evidence import MpsEvidence
    from drivetrain_api.artifacts.runtime_manifest import KnobLimits
    from drivetrain_api.budget import MemoryBudget
    from drivetrain_trainer.evidence.run_summary import SummaryWriter
    from drivetrain_trainer.runtime.collector_report import CollectorTotals
    from drivetrain_trainer.runtime.devices import ResolvedDevices
    from drivetrain_trainer.runtime.inference_flight import InferenceFlight
    from drivetrain_trainer.runtime.ingress_words import IngressCounters
    from drivetrain_trainer.training.inputs import RankInput

_FLIGHT = tuple(InferenceFlightEvidence.model_fields)


class ManifestWriter:
    """Keeps a rank's manifest valid at every moment; rank 0's stands in the run's summary."""

    def __init__(self, summary: SummaryWriter | None = None) -> None:
        """Let `summary` take it along; where it is None, the manifest is only kept here."""
        self._summary = summary
        self._state: dict[str, Any] | None = None
        self._mapping: dict[str, JsonValue] | None = None
        self._backend_device: str | None = None

    @property
    def manifest(self) -> RuntimeManifest | None:
        """As it is now; None before `begin`."""
        return None if self._state is None else RuntimeManifest.model_validate(self._state)

    def as_mapping(self) -> dict[str, JsonValue]:
        """As it stands in the summary; made anew only where something was noted.

        Raises:
            RuntimeError: it has not been begun.
        """
        self._begun()
        manifest = self.manifest if self._mapping is None else None
        if manifest is not None:
            self._mapping = manifest.as_mapping()
        assert self._mapping is not None, "it has been begun"
        return self._mapping

    def begin(
        self, limits: Mapping[str, KnobLimits], budget: MemoryBudget, devices: ResolvedDevices
    ) -> None:
        """Write what is decided before anything is booted.

        Args:
            limits: Of the settings (`RuntimeSettings.limits`).
            budget: Of the rank's memory.
            devices: What its devices resolved to.

        Raises:
            ValueError: the budget is for a ring that does not lie where the devices say.
            FencedError, OSError: as of `SummaryWriter.write`.
        """
        ring_on_device = devices.ring is RingKind.CUDA
        if budget.sizes.ring_on_device != ring_on_device:
            raise ValueError(f"a {devices.ring.value} ring, but the budget is for another one")
        self._backend_device = devices.backend
        self._state = {
            "schema_version": RUNTIME_MANIFEST_VERSION,
            "inference_ring_capacity": limits["inference_slot_capacity"].effective,
            "collector_metrics_interval": limits["collector_metrics_interval"].effective,
            "tensor_memory_budget": tensor_memory(budget),
            "runtime_limits": dict(limits),
            "devices": device_labels(devices),
        }
        if ring_on_device:
            self._state["inference_memory_budget"] = inference_memory(budget)
        self._mapping = None
        if self._summary is not None:
            self._summary.follow_manifest(self.as_mapping)
            self._summary.write()

    def note(
        self,
        *,
        flight: InferenceFlight | None = None,
        ingress: IngressCounters | None = None,
        diagnostics: BackendDiagnostics | None = None,
        sharing: MpsEvidence | None = None,
        soundness: SoundnessEvidence | None = None,
    ) -> None:
        """Take what is newer; it is written with the summary's next write.

        Args:
            flight: Requests under way at the collector's last published report; its maxima are
                since the report before that one.
            ingress: Counters of the replay ingress, cumulative.
            diagnostics: The physics backend's own.
            sharing: Evidence of CUDA MPS, where the run asks for it.
            soundness: Rows that were left out, cumulative.
        """
        state = self._begun()
        self._mapping = None
        if flight is not None:
            figures = {name: getattr(flight, name) for name in _FLIGHT}
            state["inference_flight"] = InferenceFlightEvidence.model_validate(figures)
        if ingress is not None:
            state["replay_ingress"] = ReplayIngressEvidence.model_validate(vars(ingress))
        if diagnostics is not None:
            state["backend_diagnostics"] = diagnostics
        if sharing is not None:
            state["cuda_process_sharing"] = sharing
        if soundness is not None:
            state["soundness"] = soundness

    def complete(
        self, *, shutdown: Mapping[str, JsonValue] | None = None, reached_end: bool = True
    ) -> None:
        """The rank has ended; the summary's last write takes it along.

        Args:
            shutdown: How it was taken down; None where that gave no diagnostics.
            reached_end: Whether the run did what it was started for: then every stable field
                must be there.

        Raises:
            ArtifactError: one is not.
        """
        state = self._begun()
        state["collector_backend_device"] = self._backend_device
        if shutdown is not None:
            state["shutdown"] = dict(shutdown)
        self._mapping = None
        read_manifest(self.as_mapping(), completed=reached_end)

    def _begun(self) -> dict[str, Any]:
        if self._state is None:
            raise RuntimeError("the manifest has not been begun")
        return self._state


def rank_budget(given: RankInput, devices: ResolvedDevices) -> MemoryBudget:
    """The memory budget of a rank with these devices."""
    sizes = sizes_of(
        given.spec,
        observation_dim=given.task.observation_dim,
        action_dim=given.task.action_dim,
        on_device=devices.learner.startswith("cuda"),
        ring_on_device=devices.ring is RingKind.CUDA,
    )
    return memory_budget(sizes)


def begin_manifest(
    given: RankInput, devices: ResolvedDevices, budget: MemoryBudget, summary: SummaryWriter | None
) -> ManifestWriter:
    """A rank's manifest, begun."""
    writer = ManifestWriter(summary)
    writer.begin(given.settings.limits(chosen(given.attempt.spec, given.task)), budget, devices)
    return writer


def soundness(totals: CollectorTotals) -> SoundnessEvidence:
    """`soundness`: what a collector left out so far, and why."""
    return SoundnessEvidence(
        invalid_rows=totals.invalid_rows,
        by_reason={name: count for name, count in totals.instability.items() if count},
        first=None if totals.first_unsound is None else str(totals.first_unsound)[:1024],
    )


def tensor_memory(budget: MemoryBudget) -> dict[str, JsonValue]:
    """`tensor_memory_budget`: every part in bytes, and the sizes that they follow from."""
    parts: dict[str, JsonValue] = {
        field.name: getattr(budget, field.name) for field in fields(budget) if field.name != "sizes"
    }
    sizes: dict[str, JsonValue] = dict(asdict(budget.sizes))
    sums = {"shared": budget.shared, "required": budget.required, "host": budget.host}
    return {**parts, **sums, "sizes": sizes}


def inference_memory(budget: MemoryBudget) -> InferenceMemoryEvidence:
    """`inference_memory_budget` of a ring on a device."""
    figures = {
        "ipc_event_count": budget.sizes.ipc_events,
        "ring_bytes": budget.inference_ring,
        "exact_bytes": budget.inference_exact,
        "total_bytes": budget.inference,
    }
    return InferenceMemoryEvidence.model_validate(figures)


def device_labels(devices: ResolvedDevices) -> dict[str, str]:
    """`devices`: what was resolved, and the ring that follows."""
    return {
        "learner": devices.learner,
        "collector_tensor": devices.collector_tensor,
        "inference_ring": devices.ring.value,
    }
