"""Kinds of the objects that a run owns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as plain JSON values."""


class ChildKind(StrEnum):
    """Kinds of the objects that a run owns."""

    JOB = "Job"
    SERVICE = "Service"
    CONFIG_MAP = "ConfigMap"
    SERVICE_ACCOUNT = "ServiceAccount"
    ROLE = "Role"
    ROLE_BINDING = "RoleBinding"
    CLAIM = "PersistentVolumeClaim"


@dataclass(frozen=True)
class Child:
    """An object to create for a run."""

    kind: ChildKind
    name: str
    manifest: Manifest
