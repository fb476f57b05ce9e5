"""``drivetrain suite --cluster`` on a real API server; the test plays the operator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from suite_files import TEMPLATE
from tests.support.kubernetes.api import Api, Object, wait_for
from tests.support.kubernetes.control_plane import ControlPlane

from drivetrain_api.artifacts.suite_record import SuiteRecord

DRIVETRAIN = "drivetrain.dev/v1alpha1"
FOLDER = "suites/swing/sac/inverted_pendulum"
LIMIT = 120.0
RULES: Object = {
    "apiGroups": ["drivetrain.dev"],
    "resources": ["trainingruns"],
    "verbs": ["create", "get", "list", "watch"],
}
"""What the guide says is enough."""


class Bench:
    """A namespace, a suite, and the command."""

    def __init__(self, api: Api, namespace: str, kubeconfig: Path, folder: Path) -> None:
        self.api = api
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def write(self, **spec: Any) -> None:
        content = {
            "apiVersion": DRIVETRAIN,
            "kind": "Suite",
            "metadata": {"name": "swing"},
            "spec": {"template": {**TEMPLATE, "storage": {"claimName": "results"}}, **spec},
        }
        (self.folder / "suite.yaml").write_text(yaml.safe_dump(content))

    def begin(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "drivetrain_operator.cli.main", "suite", "--cluster"]
        process = subprocess.Popen(
            [*command, "-f", "suite.yaml", "--kubeconfig", str(self.kubeconfig), *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def end(self, process: subprocess.Popen[str], code: int) -> str:
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == code, out + err
        return out + err

    def runs(self) -> dict[str, Object]:
        found = self.api.objects(DRIVETRAIN, "TrainingRun", self.namespace)
        return {run["metadata"]["name"]: run for run in found}

    def until_there(self, *names: str) -> dict[str, Object]:
        """Until these runs and no others are there."""
        wait_for(lambda: set(self.runs()) == set(names), f"runs {names}", LIMIT, 0.1)
        return self.runs()

    def set_phase(self, name: str, phase: str, **more: Any) -> None:
        """As the operator would."""
        status = {"phase": phase, **more}
        path = (DRIVETRAIN, "TrainingRun", name, {"status": status}, self.namespace)
        self.api.patch(*path, subresource="status")

    def states(self) -> list[str]:
        record = SuiteRecord.from_json((self.folder / "suites/swing/suite.json").read_bytes())
        return [str(member.state) for member in record.members]


@pytest.fixture
def bench(api: Api, namespace: str, kubeconfig: Path, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(api, namespace, kubeconfig, tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_so_many_in_flight_a_failure_stops_no_other_and_is_retried_when_asked(bench: Bench) -> None:
    bench.write(seeds=[5, 6, 7, 8])
    command = bench.begin("--max-in-flight", "2")
    runs = bench.until_there("swing-s0", "swing-s1")
    assert runs["swing-s1"]["metadata"]["labels"] == {
        "drivetrain.dev/suite": "swing",
        "drivetrain.dev/variant": "default",
        "drivetrain.dev/run-idx": "1",
    }
    assert runs["swing-s1"]["spec"]["training"]["logDir"] == f"{FOLDER}/run_1_seed_6"
    assert runs["swing-s1"]["spec"]["experiment"]["runIdx"] == 1
    bench.set_phase("swing-s0", "Running", progress={"envSteps": 7, "targetEnvSteps": 400})
    bench.set_phase("swing-s1", "Failed", message="a wheel fell off")
    bench.until_there("swing-s0", "swing-s1", "swing-s2")
    bench.set_phase("swing-s2", "Complete")
    bench.until_there("swing-s0", "swing-s1", "swing-s2", "swing-s3")
    bench.set_phase("swing-s0", "Complete")
    bench.set_phase("swing-s3", "Complete")
    said = bench.end(command, 1)
    assert bench.states() == ["complete", "failed", "complete", "complete"]
    assert "a wheel fell off" in said
    assert "3 complete, 1 failed of 4 members" in said

    before = bench.runs()["swing-s1"]["metadata"]["uid"]
    again = bench.begin("--retry-failed")
    wait_for(
        lambda: bench.runs().get("swing-s1", {}).get("metadata", {}).get("uid", before) != before,
        "another swing-s1",
        LIMIT,
        0.1,
    )
    assert bench.runs()["swing-s1"]["spec"]["training"]["logDir"] == f"{FOLDER}/run_1_seed_6-2"
    bench.set_phase("swing-s1", "Complete")
    bench.end(again, 0)
    assert bench.states() == ["complete"] * 4


def test_a_run_that_somebody_deletes_or_suspends_is_told(bench: Bench) -> None:
    bench.write(seeds=2)
    command = bench.begin()
    bench.until_there("swing-s0", "swing-s1")
    bench.set_phase("swing-s1", "Suspended")
    bench.api.delete(DRIVETRAIN, "TrainingRun", "swing-s0", bench.namespace)
    said = bench.end(command, 1)
    assert bench.states() == ["failed", "suspended"]
    assert "was deleted from the cluster" in said


def test_the_record_says_where_the_suite_is_and_elsewhere_it_is_refused_by_name(
    bench: Bench, api: Api, control_plane: ControlPlane
) -> None:
    bench.write(seeds=2)
    command = bench.begin("--max-in-flight", "1")
    bench.until_there("swing-s0")
    bench.set_phase("swing-s0", "Complete")
    bench.until_there("swing-s0", "swing-s1")
    command.terminate()
    command.communicate(timeout=LIMIT)
    path = bench.folder / "suites/swing/suite.json"
    record = SuiteRecord.from_json(path.read_bytes())
    assert record.cluster is not None
    assert record.cluster.key == (control_plane.url, bench.namespace)

    before = path.read_bytes()
    for words in ((), ("--dry-run",)):
        said = bench.end(bench.begin("--namespace", "default", *words), 2)
        assert f"suite swing was started on {control_plane.url} in namespace" in said
        assert f"go on there with --namespace {bench.namespace}" in said
    other = control_plane.url.replace("127.0.0.1", "localhost")
    assert other != control_plane.url
    here = bench.kubeconfig
    bench.kubeconfig = control_plane.write_kubeconfig(
        bench.folder / "other", url=other, namespace=bench.namespace
    )
    said = bench.end(bench.begin(), 2)
    assert f"got on {other} in namespace {bench.namespace}" in said
    assert f"--context of {control_plane.url}" in said
    assert path.read_bytes() == before
    assert api.objects(DRIVETRAIN, "TrainingRun", "default") == []

    bench.kubeconfig = here
    again = bench.begin()
    bench.set_phase("swing-s1", "Complete")
    bench.end(again, 0)


def test_ctrl_c_leaves_runs_alone(bench: Bench) -> None:
    bench.write(seeds=3)
    command = bench.begin("--max-in-flight", "1")
    bench.until_there("swing-s0")
    wait_for(lambda: bench.states()[0] == "running", "the record", LIMIT, 0.1)
    command.terminate()
    out, err = command.communicate(timeout=LIMIT)
    assert command.returncode == 143, out + err
    assert "1 TrainingRun(s) go on in the cluster; the same command creates the others" in err
    assert bench.runs()["swing-s0"]["spec"].get("suspend") is None


def test_what_the_server_refuses_and_foreign_runs_are_told_before_anything_is_made(
    bench: Bench,
) -> None:
    bench.write(seeds=2)
    foreign = {
        "apiVersion": DRIVETRAIN,
        "kind": "TrainingRun",
        "metadata": {"name": "swing-s1"},
        "spec": TEMPLATE,
    }
    bench.api.create(foreign, namespace=bench.namespace)
    said = bench.end(bench.begin(), 2)
    assert "there is a run swing-s1 already that is not of this suite" in said
    assert set(bench.runs()) == {"swing-s1"}


def test_without_a_common_claim_the_command_warns(bench: Bench) -> None:
    bench.write(seeds=2, template=TEMPLATE)
    said = bench.end(bench.begin("--dry-run"), 0)
    assert "2 member(s) have no storage.claimName" in said
    assert bench.runs() == {}
    assert not (bench.folder / "suites").exists()


@pytest.fixture
def as_account(
    control_plane: ControlPlane, api: Api, namespace: str, tmp_path: Path
) -> Callable[[list[str]], Path]:
    """A kubeconfig of somebody with these verbs on TrainingRuns and no other rights."""

    def made(verbs: list[str]) -> Path:
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "user"},
            "rules": [{**RULES, "verbs": verbs}],
        }
        subject = {"kind": "ServiceAccount", "name": "user", "namespace": namespace}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "user"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user"},
            "subjects": [subject],
        }
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "user"}}
        for each in (account, role, binding):
            api.create(each, namespace=namespace)
        token = control_plane.account_token(namespace, "user")
        path: Path = control_plane.write_kubeconfig(
            tmp_path / "user.yaml", namespace=namespace, token=token
        )
        return path

    return made


def test_the_rights_that_the_guide_names_are_enough(
    bench: Bench, as_account: Callable[[list[str]], Path]
) -> None:
    bench.kubeconfig = as_account(RULES["verbs"])
    bench.write()
    command = bench.begin()
    bench.until_there("swing-s0")
    bench.set_phase("swing-s0", "Complete")
    bench.end(command, 0)


def test_without_the_right_to_create_nothing_is_begun(
    bench: Bench, as_account: Callable[[list[str]], Path]
) -> None:
    bench.kubeconfig = as_account(["get", "list", "watch"])
    bench.write()
    said = bench.end(bench.begin(), 1)
    assert 'cannot create resource "trainingruns"' in said
    assert "ask for that permission" in said
    assert not (bench.folder / "suites/swing/suite.json").exists()
