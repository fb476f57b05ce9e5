"""The API resources that are read or written, and their paths on an API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from drivetrain_api.base import GROUP, KIND, VERSION
from drivetrain_operator.manifests.kinds import ChildKind


@dataclass(frozen=True)
class Resource:
    """A kind of object as the API server serves it."""

    group: str
    """API group; empty for the core group."""
    version: str
    plural: str
    """Name in paths and in RBAC rules, such as ``configmaps``."""
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Path of the collection, of one object, or of a subresource of that object.

        Args:
            namespace: None for all namespaces, and for what lives in none.
            name: The object; None for the collection.
            subresource: Such as ``status`` or ``log``; needs a name.

        Raises:
            ValueError: for a namespace where the resource has none, for one object without
                its namespace, and for a subresource without a name.
        """
        self._check(namespace, name, subresource)
        parts = ["apis", self.group] if self.group else ["api"]
        parts.append(self.version)
        if namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        if subresource is not None:
            parts.append(subresource)
        return "/" + "/".join(parts)

    def _check(self, namespace: str | None, name: str | None, subresource: str | None) -> None:
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.plural} live in no namespace; got {namespace!r}")
        if name is not None and namespace is None and self.namespaced:
            raise ValueError(f"{self.plural} {name!r} needs its namespace")
        if "" in (namespace, name):
            raise ValueError(f"{self.plural}: a namespace and a name are never empty")
        if subresource is not None and name is None:
            raise ValueError(f"{self.plural}/{subresource} needs a name")


TRAINING_RUNS: Final = Resource(GROUP, VERSION, "trainingruns", KIND)
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
PODS: Final = Resource("", "v1", "pods", "Pod")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SERVICES: Final = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
EVENTS: Final = Resource("", "v1", "events", "Event")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")

_OF_KIND: Final = {
    ChildKind.JOB: JOBS,
    ChildKind.SERVICE: SERVICES,
    ChildKind.CONFIG_MAP: CONFIG_MAPS,
    ChildKind.SERVICE_ACCOUNT: SERVICE_ACCOUNTS,
    ChildKind.ROLE: ROLES,
    ChildKind.ROLE_BINDING: ROLE_BINDINGS,
    ChildKind.CLAIM: CLAIMS,
}


def resource_of(kind: ChildKind) -> Resource:
    """The resource under which children of that kind are served."""
    return _OF_KIND[kind]
