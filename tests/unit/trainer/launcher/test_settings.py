"""The pod's environment, and what is refused in it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from drivetrain_api.errors import SpecError
from drivetrain_api.trainingrun import TopologyConfig
from drivetrain_trainer.launcher.settings import LauncherSettings, Rendezvous

POD = {
    "PET_NNODES": "3",
    "PET_NPROC_PER_NODE": "2",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "run-a1-0.run-a1",
    "PET_MASTER_PORT": "29500",
}
TOPOLOGY = TopologyConfig(nodes=3, ranks_per_node=2)


def test_unset_variables_mean_the_mounts_of_a_pod() -> None:
    settings = LauncherSettings.of({"DRIVETRAIN_SCRATCH": ""})
    assert settings.spec_file == Path("/etc/drivetrain/run.json")
    assert settings.storage == Path("/var/lib/drivetrain")
    assert settings.scratch == Path("/run/drivetrain")
    assert settings.termination_log == Path("/dev/termination-log")
    assert not settings.termination_log_given
    assert settings.progress_sink is None


def test_set_variables_count() -> None:
    settings = LauncherSettings.of(
        {
            "DRIVETRAIN_SPEC_FILE": "/a",
            "DRIVETRAIN_STORAGE": "/b",
            "DRIVETRAIN_SCRATCH": "/c",
            "DRIVETRAIN_PROGRESS_SINK": "file:/d",
            "DRIVETRAIN_TERMINATION_LOG": "/e",
        }
    )
    assert settings == LauncherSettings(
        Path("/a"), Path("/b"), Path("/c"), "file:/d", Path("/e"), termination_log_given=True
    )


def test_a_pod_among_several() -> None:
    rendezvous = Rendezvous.of(POD, TOPOLOGY)
    assert rendezvous == Rendezvous(3, 2, 1, "run-a1-0.run-a1", 29500)
    assert rendezvous.ranks == range(2, 4)
    assert not rendezvous.leads


def test_a_single_pod_needs_no_variable() -> None:
    rendezvous = Rendezvous.of({}, TopologyConfig(ranks_per_node=2))
    assert rendezvous.master_addr == "127.0.0.1"
    assert rendezvous.ranks == range(2)
    assert rendezvous.leads
    with socket.socket() as probe:
        probe.bind((rendezvous.master_addr, rendezvous.master_port))


def test_a_pod_that_is_alone_needs_no_dns() -> None:
    alone = {**POD, "PET_NNODES": "1", "PET_NODE_RANK": "0"}
    rendezvous = Rendezvous.of(alone, TopologyConfig(ranks_per_node=2))
    assert (rendezvous.master_addr, rendezvous.master_port) == ("127.0.0.1", 29500)


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"PET_NNODES": "2"}, "PET_NNODES", "must be topology.nodes (3); got 2"),
        ({"PET_NPROC_PER_NODE": "1"}, "PET_NPROC_PER_NODE", "topology.ranks_per_node (2); got 1"),
        ({"PET_NODE_RANK": "3"}, "PET_NODE_RANK", "a whole number from 0 to 2; got '3'"),
        ({"PET_NODE_RANK": "-1"}, "PET_NODE_RANK", "got '-1'"),
        ({"PET_NODE_RANK": "²"}, "PET_NODE_RANK", "got '²'"),
        ({"PET_NODE_RANK": ""}, "PET_NODE_RANK", "is required with 3 pods"),
        ({"PET_MASTER_ADDR": ""}, "PET_MASTER_ADDR", "is required with 3 pods"),
        ({"PET_MASTER_PORT": ""}, "PET_MASTER_PORT", "is required with 3 pods"),
        ({"PET_MASTER_PORT": "70000"}, "PET_MASTER_PORT", "from 1 to 65535; got '70000'"),
        ({"PET_NNODES": "x"}, "PET_NNODES", "a whole number from 1 to 64; got 'x'"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, str], path: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        Rendezvous.of({**POD, **changes}, TOPOLOGY)
    (violation,) = caught.value.violations
    assert violation.path == path
    assert message in violation.message


def test_everything_wrong_is_named_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        Rendezvous.of({}, TOPOLOGY)
    assert {violation.path for violation in caught.value.violations} == {
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
    }
