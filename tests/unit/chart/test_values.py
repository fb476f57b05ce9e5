"""values.yaml, its schema and the templates know the same values; wrong ones are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from tests.support.chart import CHART, EVERYTHING, ROOT, Helm, HelmError, Object, at, merged

from drivetrain_operator.wiring.settings import OperatorSettings

VALUES: Object = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: Object = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
TEMPLATES = sorted(
    path for path in (CHART / "templates").rglob("*") if path.suffix in {".yaml", ".tpl", ".txt"}
)

OPAQUE = {"resources", "podSecurityContext", "containerSecurityContext"}
"""Passed on to Kubernetes as they are, whose schema is the server's."""

OTHER: Mapping[str, Any] = {
    "extraLabels": {"team": "arms"},
    "namespaces": ["team-a"],
    "image.digest": f"sha256:{'0' * 64}",
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "another"}],
    "trainer.image.digest": f"sha256:{'0' * 64}",
    "trainer.shmSize": "2Gi",
    "operator.logLevel": "debug",
    "operator.logFormat": "console",
    "serviceAccount.annotations": {"note": "b"},
    "serviceMonitor.interval": "10s",
    "serviceMonitor.labels": {"release": "another"},
    "networkPolicy.apiServerPorts": [16443],
    "networkPolicy.apiServerCidrs": ["10.0.0.2/32"],
    "networkPolicy.metricsFrom": [{"podSelector": {}}],
    "metrics.port": 9001,
    "resources": {"limits": {"memory": "1Gi"}},
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "tolerations": [],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [],
    "podAnnotations": {"drivetrain.dev/note": "b"},
    "extraEnv": [],
    "podSecurityContext": {"runAsUser": 2000},
    "containerSecurityContext": {"privileged": None},
    "leaderElection.enabled": False,
}
"""Another value than that of `EVERYTHING`, where `_another` cannot think of one."""


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and path not in OPAQUE:
            yield from leaves(value, f"{path}.")
        else:
            yield path


def look_up(values: Mapping[str, Any], path: str) -> Any:
    found: Any = values
    for key in path.split("."):
        found = found[key]
    return found


def properties(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Object]]:
    for key, child in schema.get("properties", {}).items():
        yield f"{prefix}{key}", child
        yield from properties(child, f"{prefix}{key}.")


NODES = dict(properties(SCHEMA))


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else "another"


# -- the same values everywhere ------------------------------------------------------------


@pytest.mark.parametrize("path", list(leaves(VALUES)))
def test_no_value_is_unused(helm: Helm, everything: list[Object], path: str) -> None:
    """Changing it changes an object."""
    base = merged(VALUES, EVERYTHING)
    other = OTHER[path] if path in OTHER else _another(look_up(base, path))
    alone = {"replicas": 1} if path == "leaderElection.enabled" else {}

    assert helm.template(merged(EVERYTHING, alone, at(path, other))) != everything


@pytest.fixture(scope="module")
def everything(helm: Helm) -> list[Object]:
    return helm.template(EVERYTHING)


def test_no_template_uses_an_undeclared_value() -> None:
    declared = set(leaves(VALUES))
    known = declared | {path.rsplit(".", n)[0] for path in declared for n in (1, 2)}
    used = {
        (path.name, found)
        for path in TEMPLATES
        for found in re.findall(r"\.Values((?:\.\w+)+)", path.read_text(encoding="utf-8"))
    }

    assert {use for use in used if use[1].removeprefix(".") not in known} == set()
    assert len(used) > 60, "the pattern finds the uses"


def test_the_schema_knows_the_values_and_no_others() -> None:
    described = {path for path, node in NODES.items() if "properties" not in node}

    assert described - {"global"} == set(leaves(VALUES))


def test_every_table_is_closed_and_every_value_described() -> None:
    for path, node in {"": SCHEMA, **NODES}.items():
        if "properties" in node:
            assert node["additionalProperties"] is False, path
        if path:
            assert node["description"].endswith("."), path


def test_values_are_described_where_they_stand() -> None:
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()

    assert sum(line.lstrip().startswith("#") for line in lines) > 40
    assert all(len(line) <= 100 for line in lines)


# -- bounds are the operator's -------------------------------------------------------------

SETTINGS = {
    "trainer.runAsUser": "run_as_user",
    "trainer.tolerationSeconds": "toleration_seconds",
    "trainer.rendezvousPort": "rendezvous_port",
    "operator.workers": "workers",
    "operator.resyncSeconds": "resync_seconds",
    "operator.progressIntervalSeconds": "progress_interval_seconds",
    "operator.watchSilenceSeconds": "watch_silence_seconds",
    "operator.stuckSeconds": "stuck_seconds",
}


@pytest.mark.parametrize(("path", "setting"), SETTINGS.items())
def test_a_number_has_the_operators_bounds_and_default(path: str, setting: str) -> None:
    field = OperatorSettings.model_json_schema()["properties"][setting]

    assert NODES[path]["minimum"] == field["minimum"]
    assert NODES[path]["maximum"] == field["maximum"]
    assert look_up(VALUES, path) == field["default"]


@pytest.mark.parametrize("setting", ["log_level", "log_format"])
def test_a_choice_is_the_operators(setting: str) -> None:
    words = {"log_level": "logLevel", "log_format": "logFormat"}[setting]
    field = OperatorSettings.model_fields[setting]

    assert NODES[f"operator.{words}"]["enum"] == [str(item) for item in type(field.default)]
    assert VALUES["operator"][words] == field.default


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replica": 2}, "additional properties 'replica' not allowed"),
        ({"crds": {"installed": True}}, "at '/crds': additional properties 'installed'"),
        ({"image": {"name": "a"}}, "at '/image': additional properties 'name'"),
        ({"replicas": "two"}, "at '/replicas': got string, want integer"),
        ({"replicas": -1}, "at '/replicas': minimum: got -1, want 0"),
        ({"namespaces": ["Team_A"]}, "at '/namespaces/0': 'Team_A' does not match pattern"),
        ({"namespaces": ["a", "a"]}, "at '/namespaces': items at 0 and 1 are equal"),
        ({"namespaces": "a"}, "at '/namespaces': got string, want array"),
        ({"image": {"digest": "sha256:12"}}, "at '/image/digest': 'sha256:12' does not match"),
        ({"image": {"repository": ""}}, "at '/image/repository': '' does not match pattern"),
        ({"image": {"pullPolicy": "never"}}, "at '/image/pullPolicy': value must be one of"),
        ({"trainer": {"runAsUser": 0}}, "at '/trainer/runAsUser': minimum: got 0, want 1"),
        ({"trainer": {"shmSize": "1 GiB"}}, "at '/trainer/shmSize': '1 GiB' does not match"),
        ({"trainer": {"rendezvousPort": 80}}, "at '/trainer/rendezvousPort': minimum: got 80"),
        ({"operator": {"workers": 0}}, "at '/operator/workers': minimum: got 0, want 1"),
        ({"operator": {"logLevel": "trace"}}, "at '/operator/logLevel': value must be one of"),
        ({"health": {"port": 80}}, "at '/health/port': minimum: got 80, want 1,024"),
        ({"pdb": {"maxUnavailable": 0}}, "at '/pdb/maxUnavailable'"),
        ({"pdb": {"maxUnavailable": "0%"}}, "at '/pdb/maxUnavailable'"),
        ({"extraEnv": [{"value": "a"}]}, "at '/extraEnv/0': missing property 'name'"),
        ({"extraLabels": {"a": 1}}, "at '/extraLabels/a': got number, want string"),
        ({"networkPolicy": {"apiServerPorts": []}}, "at '/networkPolicy/apiServerPorts'"),
        (
            {"replicas": 2, "leaderElection": {"enabled": False}},
            "replicas is 2 with leaderElection.enabled false: only one operator may act",
        ),
        ({"metrics": {"port": 8081}}, "metrics.port and health.port are both 8081"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_by_name(helm: Helm, values: Object, words: str) -> None:
    with pytest.raises(HelmError) as refused:
        helm.template(values)

    assert words in str(refused.value)


def test_a_parent_chart_may_have_global_values(helm: Helm, default: list[Object]) -> None:
    assert helm.template({"global": {"registry": "a"}}) == default


# -- documents -----------------------------------------------------------------------------

DOCUMENTED = [
    (path.stem, text)
    for path in sorted((ROOT / "docs").rglob("*.md"))
    for text in re.findall(
        r'^```yaml title="values.yaml"\n(.*?)^```$',
        path.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
]


@pytest.mark.parametrize(("page", "text"), DOCUMENTED)
def test_values_in_the_documents_are_taken(helm: Helm, page: str, text: str) -> None:
    assert helm.template(yaml.safe_load(text)), page


def test_there_are_values_in_the_documents() -> None:
    assert len(DOCUMENTED) >= 6
