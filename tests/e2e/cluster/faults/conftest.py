"""A run of its own for each fault, on a node of ours: what troubles it is done to the node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.cluster.conftest import Release
from tests.e2e.cluster.faults.trial import Trial
from tests.support.kubernetes.kubectl import Kubectl
from tests.support.kubernetes.node import Node


@pytest.fixture
def trial(node: Node, release: Release, namespace: Kubectl) -> Iterator[Trial]:
    """A run to trouble, with an operator that works."""
    del release
    with Trial(node, namespace.namespace) as made:
        yield made
