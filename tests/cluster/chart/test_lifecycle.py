"""Install, upgrade, rollback and uninstall by Helm 4 on a control plane that starts empty."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.cluster.chart.conftest import TRAINING_RUN, training_run
from tests.support.chart import CHART, NAMESPACE, RELEASE, Helm, HelmError, Object
from tests.support.kubernetes.api import Api, path_of, wait_for
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.programs import Program, ensure

from drivetrain_api import crd

DEFINITION = "apiextensions.k8s.io/v1", "CustomResourceDefinition", crd.CRD_NAME
OPERATOR = "apps/v1", "Deployment", RELEASE, NAMESPACE
KEPT = {"CustomResourceDefinition"}


class Lifecycle:
    """One release as an administrator drives it."""

    def __init__(self, helm: Helm, api: Api) -> None:
        self.helm = helm
        self.api = api

    def do(
        self,
        command: str,
        values: Object | None = None,
        *flags: str,
        release: str = RELEASE,
        namespace: str = NAMESPACE,
        chart: Path = CHART,
    ) -> str:
        """`helm COMMAND RELEASE CHART`, in the release's namespace."""
        create = ("--create-namespace",) if command == "install" else ()
        where = ("--namespace", namespace, *create, *flags)
        return self.helm.run(command, release, str(chart), *where, values=values)

    def undo(self, *, release: str = RELEASE, namespace: str = NAMESPACE) -> str:
        return self.helm.run("uninstall", release, "--namespace", namespace)

    def definition(self) -> Object | None:
        return self.api.find(*DEFINITION)

    def columns(self) -> list[str]:
        definition = self.definition()
        assert definition is not None
        (version,) = definition["spec"]["versions"]
        return [column["name"] for column in version["additionalPrinterColumns"]]

    def train(self, name: str, **spec: object) -> Object:
        def served() -> Object | None:
            answer = self.api.ask("POST", folder, training_run(name, **spec))
            return None if answer.code == 404 else answer.body

        folder = "/apis/drivetrain.dev/v1alpha1/namespaces/default/trainingruns"
        return wait_for(served, "TrainingRuns served")

    def run(self, name: str) -> Object | None:
        return self.api.find(*TRAINING_RUN, name, "default")


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """For tests that remove the definition under everybody's feet."""
    with ControlPlane(tmp_path_factory.mktemp("chart-lifecycle")) as own:
        yield own


@pytest.fixture
def life(own_plane: ControlPlane, tmp_path: Path) -> Iterator[Lifecycle]:
    """A cluster on which nothing of ours is, before and after."""
    helm = Helm(ensure(Program.HELM)[Program.HELM], tmp_path, own_plane.kubeconfig)
    life = Lifecycle(helm, own_plane.api)
    yield life
    for release in json.loads(helm.run("list", "--all-namespaces", "--output", "json")):
        life.undo(release=release["name"], namespace=release["namespace"])
    own_plane.api.delete(*DEFINITION)
    wait_for(lambda: life.definition() is None, "end of the definition")


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The chart of a later release, whose definition has one more column and field."""
    chart = tmp_path / "later"
    shutil.copytree(CHART, chart)
    path = chart / "files" / f"{crd.CRD_NAME}.yaml"
    definition = yaml.safe_load(path.read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    note = {"description": "A note.", "type": "string", "maxLength": 64}
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["note"] = note
    column = {"name": "Note", "type": "string", "jsonPath": ".spec.note"}
    version["additionalPrinterColumns"].append(column)
    path.write_text(yaml.safe_dump(definition, sort_keys=False), encoding="utf-8")
    return chart


# -- the definition ------------------------------------------------------------------------


def test_an_upgrade_updates_the_definition_and_a_rollback_takes_it_back(
    life: Lifecycle, later: Path
) -> None:
    life.do("install")
    life.train("before")
    assert "Note" not in life.columns()

    life.do("upgrade", chart=later)

    assert life.columns()[-1] == "Note"
    made = wait_for(lambda: noted(life), "the new field")
    assert made["spec"]["note"] == "a"
    assert life.run("before") is not None

    life.helm.run("rollback", RELEASE, "1", "--namespace", NAMESPACE)

    assert "Note" not in life.columns()
    wait_for(lambda: "note" not in (life.run("after") or {"spec": {}})["spec"], "pruned field")
    assert life.run("before") is not None


def noted(life: Lifecycle) -> Object | None:
    """A run with the new field, once the server serves it."""
    made = life.train("after", note="a")
    if "note" in made.get("spec", {}):
        return made
    life.api.delete(*TRAINING_RUN, "after", "default")
    return None


def test_what_an_uninstall_leaves_is_the_definition_and_the_runs(life: Lifecycle) -> None:
    life.do("install")
    life.train("mine")
    made = life.helm.template()

    said = life.undo()

    assert f"[CustomResourceDefinition] {crd.CRD_NAME}" in said
    left = {item["kind"] for item in made if life.api.ask("GET", path_of(item)).code != 404}
    assert left == KEPT
    assert life.api.objects("v1", "Secret", NAMESPACE) == []
    assert life.run("mine") is not None

    with pytest.raises(HelmError, match="cannot be imported into the current release"):
        life.do("install", release="another")
    life.do("install", None, "--take-ownership", release="another")
    assert life.run("mine") is not None


def test_the_same_release_finds_its_definition_again(life: Lifecycle) -> None:
    life.do("install")
    life.undo()

    life.do("install")

    assert life.definition() is not None


def test_without_keep_an_uninstall_deletes_every_run(life: Lifecycle) -> None:
    said = life.do("install", {"crds": {"keep": False}})
    assert "WARNING: crds.keep is false" in said
    life.train("mine")

    life.undo()

    wait_for(lambda: life.definition() is None, "end of the definition")
    assert life.api.ask("GET", "/apis/drivetrain.dev/v1alpha1/trainingruns").code == 404


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "not kept"])
def test_a_release_that_stops_installing_the_definition(life: Lifecycle, keep: bool) -> None:
    """What the last revision said about keeping decides."""
    life.do("install", {"crds": {"keep": keep}})

    life.do("upgrade", {"crds": {"install": False}})

    if keep:
        assert life.definition() is not None
    else:
        wait_for(lambda: life.definition() is None, "end of the definition")


def test_keep_can_be_set_afterwards(life: Lifecycle) -> None:
    life.do("install", {"crds": {"keep": False}})
    life.do("upgrade", {"crds": {"keep": True}})

    life.undo()

    assert life.definition() is not None


# -- a second release ----------------------------------------------------------------------


def test_a_second_release_leaves_the_definition_to_the_first(life: Lifecycle) -> None:
    life.do("install", {"namespaces": ["default"]})
    second = {"release": "second", "namespace": "team-b"}

    with pytest.raises(HelmError) as refused:
        life.do("install", {"namespaces": ["team-b"]}, **second)
    assert 'key "meta.helm.sh/release-name" must equal "second"' in str(refused.value)

    life.do("install", {"namespaces": ["team-b"], "crds": {"install": False}}, **second)
    assert life.api.find("apps/v1", "Deployment", "second-drivetrain", "team-b")
    life.undo(**second)
    assert life.definition() is not None
    assert life.api.find(*OPERATOR) is not None


def test_the_definition_is_handed_to_the_second_release(life: Lifecycle) -> None:
    life.do("install", {"namespaces": ["default"]})
    life.train("mine")
    second = {"release": "second", "namespace": "team-b"}
    life.do("install", {"namespaces": ["team-b"], "crds": {"install": False}}, **second)

    life.do("upgrade", {"namespaces": ["team-b"]}, "--take-ownership", **second)
    life.undo()

    definition = life.definition()
    assert definition is not None
    assert definition["metadata"]["annotations"]["meta.helm.sh/release-name"] == "second"
    assert life.run("mine") is not None
    life.do("upgrade", {"namespaces": ["team-b"]}, **second)


# -- objects patched by hand ---------------------------------------------------------------


@pytest.fixture
def kubectl(own_plane: ControlPlane) -> list[str | Path]:
    return [ensure(Program.KUBECTL)[Program.KUBECTL], "--kubeconfig", own_plane.kubeconfig]


def by_hand(kubectl: list[str | Path], *arguments: str) -> None:
    subprocess.run([*kubectl, "-n", NAMESPACE, *arguments], check=True, capture_output=True)


def level(life: Lifecycle) -> str:
    (container,) = life.api.get(*OPERATOR)["spec"]["template"]["spec"]["containers"]
    (found,) = [item for item in container["env"] if item["name"].endswith("LOG_LEVEL")]
    return str(found["value"])


def test_a_value_changed_by_hand_stops_an_upgrade_until_it_is_decided(
    life: Lifecycle, kubectl: list[str | Path]
) -> None:
    life.do("install")
    by_hand(kubectl, "set", "env", f"deployment/{RELEASE}", "DRIVETRAIN_OPERATOR_LOG_LEVEL=debug")

    with pytest.raises(HelmError) as refused:
        life.do("upgrade", {"operator": {"workers": 4}})
    words = str(refused.value)
    assert 'conflict with "kubectl-set" using apps/v1' in words
    assert 'env[name="DRIVETRAIN_OPERATOR_LOG_LEVEL"].value' in words
    assert level(life) == "debug"

    life.do("upgrade", {"operator": {"workers": 4, "logLevel": "debug"}})  # the same: no conflict
    assert level(life) == "debug"
    with pytest.raises(HelmError, match="conflict"):
        life.helm.run("rollback", RELEASE, "1", "--namespace", NAMESPACE)
    life.do("upgrade", {"operator": {"workers": 4}}, "--force-conflicts")
    assert level(life) == "info"
    life.do("upgrade", {"operator": {"logLevel": "warning"}})  # and it is Helm's again
    assert level(life) == "warning"


def test_what_the_chart_does_not_say_stays(life: Lifecycle, kubectl: list[str | Path]) -> None:
    life.do("install")
    by_hand(kubectl, "set", "env", f"deployment/{RELEASE}", "MINE=1")
    by_hand(kubectl, "annotate", f"deployment/{RELEASE}", "example.com/mine=1")

    life.do("upgrade", {"operator": {"workers": 4}})

    found = life.api.get(*OPERATOR)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert {"name": "MINE", "value": "1"} in container["env"]
    assert found["metadata"]["annotations"]["example.com/mine"] == "1"


def test_what_was_scaled_by_hand(life: Lifecycle, kubectl: list[str | Path]) -> None:
    """The server records no owner for a zero."""
    life.do("install")
    by_hand(kubectl, "scale", f"deployment/{RELEASE}", "--replicas=0")
    life.do("upgrade")
    assert life.api.get(*OPERATOR)["spec"]["replicas"] == 1

    by_hand(kubectl, "scale", f"deployment/{RELEASE}", "--replicas=3")
    with pytest.raises(HelmError, match=r"conflict with .kubectl. with subresource .scale."):
        life.do("upgrade", None, "--rollback-on-failure")
    assert life.api.get(*OPERATOR)["spec"]["replicas"] == 3


def test_what_was_deleted_by_hand_comes_back(life: Lifecycle) -> None:
    life.do("install")
    life.api.delete("v1", "Service", RELEASE, NAMESPACE)

    life.do("upgrade")

    assert life.api.find("v1", "Service", RELEASE, NAMESPACE) is not None


# -- without rights over the cluster -------------------------------------------------------


def test_the_admin_of_a_namespace_installs_for_it(
    life: Lifecycle, own_plane: ControlPlane, tmp_path: Path
) -> None:
    """Once somebody else has brought the definition and the operator's rights."""
    life.do("install", release="cluster", namespace="cluster")
    place = "team-a"
    life.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    group = "rbac.authorization.k8s.io"
    life.api.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "admin", "namespace": place},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": place}],
        }
    )
    wait_for(lambda: life.api.find("v1", "ServiceAccount", "default", place), "account")
    token = own_plane.account_token(place, "default")
    config = own_plane.write_kubeconfig(tmp_path / "admin", token=token, namespace=place)
    life.helm = Helm(life.helm.program, life.helm.home, config)
    values = {
        "namespaces": [place],
        "crds": {"install": False},
        "rbac": {"create": False, "aggregate": False},
        "admissionPolicy": {"enabled": False},
    }
    where = ("--namespace", place)
    more = {**values, "rbac": {"create": True, "aggregate": False}}
    with pytest.raises(HelmError, match="attempting to grant RBAC permissions not currently held"):
        life.helm.run("install", RELEASE, str(CHART), *where, values=more)
    life.helm.run("uninstall", RELEASE, *where)
    life.helm.run("install", RELEASE, str(CHART), *where, values=values)

    assert life.api.find("apps/v1", "Deployment", RELEASE, place) is not None
    life.helm.run("uninstall", RELEASE, *where)
    life.helm = Helm(life.helm.program, life.helm.home, own_plane.kubeconfig)
    life.api.delete("v1", "Namespace", place)
