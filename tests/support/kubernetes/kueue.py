"""Kueue itself, installed from its own chart, and the objects that its queues are made of.

Kueue's own objects are applied as its chart renders them, but for the aggregated API that
tells of pending workloads: a cluster may lack the certificate which that needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from tests.support.chart import Helm, only
from tests.support.kubernetes.api import Object, wait_for
from tests.support.kubernetes.image_parts import Image
from tests.support.kubernetes.kubectl import CommandError, Kubectl
from tests.support.kubernetes.program_sources import module_folder
from tests.support.kubernetes.programs import Program, ensure

VERSION: Final = "kueue.x-k8s.io/v1beta2"
_NAMESPACE: Final = "kueue-system"
_WEBHOOKS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_READY_S: Final = 180.0
_CONFIGURATION: Final = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "health": {"healthProbeBindAddress": ":8081"},
    "metrics": {"bindAddress": ":8443"},
    "webhook": {"port": 9443},
    "leaderElection": {"leaderElect": False},
    "integrations": {"frameworks": ["batch/job"]},
}


@dataclass(frozen=True)
class Kueue:
    """Kueue on one cluster.

    Args:
        kubectl: An administrator's.
        image: That the cluster has; its entry point is Kueue's program.
        home: A folder for Helm's caches.
    """

    kubectl: Kubectl
    image: Image
    home: Path

    def install(self) -> None:
        """Install it; on return its webhooks answer.

        Raises:
            TimeoutError: They do not.
        """
        self.kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
        )
        self._system.apply(*self._objects())
        wait_for(self._answers, "webhooks of Kueue", _READY_S, 0.5)

    def uninstall(self) -> None:
        """Remove it whole: first what it must let go itself, then its webhooks, then the rest."""
        system = self._system
        wait_for(lambda: not system.list("workloads", "-A"), "end of all Workloads", 120.0, 0.5)
        system("delete", "clusterqueues,resourceflavors", "--all", "--timeout=60s")
        system("delete", ",".join(_WEBHOOKS), "--selector", "app.kubernetes.io/name=kueue")
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": self._objects()})
        system("delete", "--ignore-not-found", "--timeout=100s", "-f", "-", stdin=text)
        system("delete", "namespace", _NAMESPACE, "--timeout=100s")

    @property
    def _system(self) -> Kubectl:
        return self.kubectl.within(_NAMESPACE)

    def _objects(self) -> list[Object]:
        """The chart's, to run in a cluster that pulls nothing."""
        helm = Helm(ensure(Program.HELM)[Program.HELM], self.home)
        chart = module_folder(Program.KUEUE) / "charts" / "kueue"
        rendered = helm.template(self._values(), release="kueue", namespace=_NAMESPACE, chart=chart)
        found = [item for item in rendered if "visibility" not in item["metadata"]["name"]]
        pod = only(found, "Deployment")["spec"]["template"]["spec"]
        del pod["containers"][0]["command"]  # the image has the program elsewhere
        return found

    def _values(self) -> Object:
        image = {"repository": self.image.repository, "tag": self.image.tag}
        return {
            "controllerManager": {
                "featureGates": [{"name": "VisibilityOnDemand", "enabled": False}],
                "livenessProbe": {"timeoutSeconds": 20},
                "readinessProbe": {"initialDelaySeconds": 1, "timeoutSeconds": 20},
                "manager": {
                    "image": {**image, "pullPolicy": "IfNotPresent"},
                    "podSecurityContext": {"runAsUser": 1000},
                    "resources": {"requests": {"cpu": "50m", "memory": "100Mi"}},
                },
            },
            "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(_CONFIGURATION)},
        }

    def _answers(self) -> bool:
        """Whether it checks an object: its webhooks refuse all before they are served."""
        probe = json.dumps(flavor("probe", {}))
        try:
            self.kubectl("create", "--dry-run=server", "-f", "-", stdin=probe)
        except CommandError:
            return False
        return True


# -- queue objects -----------------------------------------------------------------------------


def flavor(name: str, node_labels: Mapping[str, str]) -> Object:
    """Nodes that have these labels."""
    return _object("ResourceFlavor", name, {"nodeLabels": dict(node_labels)})


def cluster_queue(
    name: str, pods: Mapping[str, int], request: Mapping[str, str], **more: object
) -> Object:
    """A queue with room for so many pods of each flavor, in order.

    Args:
        name: Of the ClusterQueue.
        pods: How many pods run at once, by flavor.
        request: What one pod asks for, in millicores or mebibytes: `100m`, `200Mi`.
        **more: Further fields of its spec.
    """
    flavors = [
        {
            "name": each,
            "resources": [
                {"name": resource, "nominalQuota": times(amount, count)}
                for resource, amount in request.items()
            ],
        }
        for each, count in pods.items()
    ]
    group = {"coveredResources": list(request), "flavors": flavors}
    return _object(
        "ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": [group], **more}
    )


def local_queue(name: str, leads_to: str) -> Object:
    """The name by which a namespace knows a ClusterQueue."""
    return _object("LocalQueue", name, {"clusterQueue": leads_to})


def times(quantity: str, count: int) -> str:
    """A whole quantity with a unit, multiplied."""
    number = quantity.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return f"{int(number) * count}{quantity.removeprefix(number)}"


def _object(kind: str, name: str, spec: dict[str, Any]) -> Object:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
