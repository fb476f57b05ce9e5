"""Two hundred runs in twenty namespaces at once: each one comes to its end, and alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cluster.faults.lab import ALONE, Runs, manifest, namespace_of
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.simulated_kubelet import SimulatedKubelet, fails_once
from tests.support.kubernetes.witness import Witness
from tests.support.operator_process import OperatorProcess

NAMESPACES = 20
RUNS_EACH = 10


@pytest.fixture
def namespaces(frail_plane: ControlPlane) -> Iterator[list[str]]:
    with ExitStack() as stack:
        yield [stack.enter_context(namespace_of(frail_plane.api)) for _ in range(NAMESPACES)]


@pytest.mark.nightly
def test_two_hundred_runs_in_twenty_namespaces(
    frail_plane: ControlPlane, namespaces: list[str], tmp_path: Path
) -> None:
    api = frail_plane.api
    names = [f"run-{number}" for number in range(RUNS_EACH)]
    with (
        Witness(api) as witness,
        SimulatedKubelet(api, fails_once),
        OperatorProcess(tmp_path, frail_plane.kubeconfig, *ALONE) as operator,
    ):
        for name in names:
            for namespace in namespaces:
                api.create(manifest(name), namespace=namespace)
        for namespace in namespaces:
            runs = Runs(api, namespace)
            for name in names:
                runs.completes(name)
        witness.check()
        assert operator.metric("drivetrain_runs", phase="Complete") == NAMESPACES * RUNS_EACH
        assert operator.metric("drivetrain_restarts_total") == NAMESPACES * RUNS_EACH
        assert operator.probe("livez")[0] == 200
