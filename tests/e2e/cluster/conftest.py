"""A cluster that runs pods: a node of our own, or any that a kubeconfig leads to.

``DRIVETRAIN_E2E_KUBECONFIG`` names another cluster, kind's for one; then
``DRIVETRAIN_E2E_OPERATOR_IMAGE`` and ``DRIVETRAIN_E2E_TRAINER_IMAGE`` name images that it has
or can pull. It needs a default StorageClass.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.kubernetes.image_parts import Image
from tests.support.kubernetes.image_store import ImageStore
from tests.support.kubernetes.images import Builder, operator_recipe, trainer_recipe
from tests.support.kubernetes.kubectl import Kubectl, run_command
from tests.support.kubernetes.node import Node
from tests.support.kubernetes.programs import Program, ensure

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "drivetrain"
KUBECONFIG_VARIABLE = "DRIVETRAIN_E2E_KUBECONFIG"
OPERATOR_VARIABLE = "DRIVETRAIN_E2E_OPERATOR_IMAGE"
TRAINER_VARIABLE = "DRIVETRAIN_E2E_TRAINER_IMAGE"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@dataclass(frozen=True)
class Images:
    """What the cluster runs."""

    operator: Image
    trainer: Image


@dataclass(frozen=True)
class Cluster:
    """Where the tests run."""

    kubeconfig: Path
    node: Node | None
    """Ours; None on somebody's cluster."""


@dataclass(frozen=True)
class Release:
    """An installed chart."""

    name: str
    namespace: str
    kubectl: Kubectl

    def helm(self, *words: str | Path, timeout_s: float = 300.0) -> str:
        """Run helm against the cluster, in the release's namespace."""
        return run_helm(self.kubectl, self.namespace, *words, timeout_s=timeout_s)


def run_helm(kubectl: Kubectl, namespace: str, *words: str | Path, timeout_s: float = 300.0) -> str:
    """Run helm in a namespace of the cluster."""
    program = ensure(Program.HELM)[Program.HELM]
    where = ("--kubeconfig", kubectl.kubeconfig, "--namespace", namespace)
    return run_command(program, *words, *where, timeout_s=timeout_s)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs an empty cluster comes first: later the session's release is there."""
    items.sort(key=lambda item: item.get_closest_marker("empty_cluster") is None)


@pytest.fixture(scope="session")
def images() -> Images:
    """Built here from the working tree, or those that are named."""
    operator, trainer = os.environ.get(OPERATOR_VARIABLE), os.environ.get(TRAINER_VARIABLE)
    if operator and trainer:
        return Images(Image(operator), Image(trainer))
    missing = KUBECONFIG_VARIABLE in os.environ
    assert not missing, f"{OPERATOR_VARIABLE} and {TRAINER_VARIABLE} name the cluster's images"
    builder = Builder()
    return Images(builder.build(operator_recipe()), builder.build(trainer_recipe()))


@pytest.fixture(scope="session")
def cluster(images: Images) -> Iterator[Cluster]:
    """A cluster that has the images."""
    named = os.environ.get(KUBECONFIG_VARIABLE)
    if named:
        yield Cluster(Path(named), None)
        return
    with Node([images.operator, images.trainer]) as node:
        yield Cluster(node.kubeconfig, node)


@pytest.fixture(scope="session")
def node(cluster: Cluster) -> Node:
    """Our own node, for what no test may do to somebody's cluster."""
    if cluster.node is None:
        pytest.skip(f"breaks nodes, so not on the cluster that {KUBECONFIG_VARIABLE} names")
    return cluster.node


@pytest.fixture(scope="session")
def kubectl(cluster: Cluster) -> Kubectl:
    """An administrator's kubectl."""
    return Kubectl(cluster.kubeconfig)


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[Kubectl]:
    """kubectl in a fresh namespace under PodSecurity *restricted*, removed at the end."""
    name = kubectl(
        *("create", "--output", "jsonpath={.metadata.name}", "-f", "-"),
        stdin='{"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "e2e-"}}',
    )
    labels = [f"{key}={value}" for key, value in RESTRICTED.items()]
    kubectl("label", "namespace", name, *labels)
    yield kubectl.within(name)
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def release(kubectl: Kubectl, images: Images) -> Iterator[Release]:
    """The chart, installed for the session with the images at hand."""
    made = Release("drivetrain", "drivetrain-system", kubectl.within("drivetrain-system"))
    made.helm("install", made.name, CHART, "--create-namespace", *chart_values(images), "--wait")
    yield made
    made.helm("uninstall", made.name, "--wait")


def chart_values(images: Images) -> list[str]:
    """Values that make the chart use the images at hand."""
    values = {
        "image.repository": images.operator.repository,
        "image.tag": images.operator.tag,
        "trainer.image.repository": images.trainer.repository,
        "trainer.image.tag": images.trainer.tag,
    }
    return [word for key, value in values.items() for word in ("--set-string", f"{key}={value}")]


@pytest.fixture(scope="session")
def image_store() -> ImageStore:
    """To bring further images onto the node."""
    return ImageStore.shared()
