"""Kueue on the tests' cluster, with two kinds of nodes and a queue of each test's own.

Another cluster than ours needs to know Kueue's image: ``DRIVETRAIN_E2E_KUEUE_IMAGE`` names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.e2e.cluster.conftest import Cluster
from tests.support.kubernetes.api import Object
from tests.support.kubernetes.image_parts import Image
from tests.support.kubernetes.images import Builder
from tests.support.kubernetes.kubectl import Kubectl
from tests.support.kubernetes.kueue import Kueue, cluster_queue, flavor, local_queue
from tests.support.kubernetes.programs import Program, ensure

IMAGE_VARIABLE = "DRIVETRAIN_E2E_KUEUE_IMAGE"
QUEUE = "robots"
URGENT = "drivetrain-e2e-urgent"
FIRST, SECOND = "drivetrain-e2e-first", "drivetrain-e2e-second"
"""Flavors, and the labels that their nodes have."""
REQUEST = {"cpu": "100m", "memory": "200Mi"}
"""What each pod asks for."""
PRIORITY: Object = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": URGENT},
    "value": 1000,
    # Kueue alone makes room: to the scheduler all pods are alike
    "preemptionPolicy": "Never",
}


@dataclass(frozen=True)
class Queue:
    """A ClusterQueue, and the LocalQueue that leads to it from the test's namespace."""

    namespace: Kubectl

    def give(self, first: int, second: int = 0, *, held: bool = False) -> None:
        """Make room for so many pods of each flavor; nobody is let in while it is held."""
        self.namespace.apply(
            cluster_queue(
                self.namespace.namespace,
                {FIRST: first, SECOND: second},
                REQUEST,
                preemption={"withinClusterQueue": "LowerPriority"},
                stopPolicy="Hold" if held else "None",
            )
        )


@pytest.fixture(scope="module")
def kueue(
    cluster: Cluster, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kueue]:
    """Kueue, installed for the tests of a module; every node is of both flavors."""
    installed = Kueue(kubectl, _image(cluster), tmp_path_factory.mktemp("helm"))
    installed.install()
    kubectl.apply(PRIORITY, *(flavor(name, {name: "yes"}) for name in (FIRST, SECOND)))
    kubectl("label", "nodes", "--all", "--overwrite", f"{FIRST}=yes", f"{SECOND}=yes")
    yield installed
    kubectl("label", "nodes", "--all", f"{FIRST}-", f"{SECOND}-")
    kubectl("delete", "priorityclass", URGENT)
    installed.uninstall()


def _image(cluster: Cluster) -> Image:
    if cluster.node is not None:
        image = Builder().program("kueue", ensure(Program.KUEUE)[Program.KUEUE])
        cluster.node.load(image)
        return image
    named = os.environ.get(IMAGE_VARIABLE)
    if named is None:
        pytest.skip(f"{IMAGE_VARIABLE} does not name an image of Kueue for this cluster")
    return Image(named)


@pytest.fixture
def queue(kueue: Kueue, namespace: Kubectl) -> Queue:
    """A queue without any room."""
    del kueue  # checks queues
    made = Queue(namespace)
    made.give(0)
    namespace.apply(local_queue(QUEUE, namespace.namespace))
    return made
