"""The chart, as the helm program renders, installs and refuses it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
Values = Mapping[str, Any]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "drivetrain"
RELEASE = "drivetrain"
NAMESPACE = "drivetrain-system"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # many times faster, where it is there


class HelmError(Exception):
    """Helm failed; the message is what it said."""


@dataclass(frozen=True)
class Helm:
    """The program, with its caches in a folder of the test's own."""

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, values: Values | None = None, timeout_s: float = 60.0) -> str:
        """What it prints.

        Raises:
            HelmError: It failed.
        """
        given = [] if values is None else ["--values", "-"]
        done = subprocess.run(
            [self.program, *arguments, *given],
            input=yaml.safe_dump(dict(values or {})),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "KUBECONFIG": str(self.kubeconfig or self.home / "none"),
            },
        )
        if done.returncode != 0:
            raise HelmError(done.stderr or done.stdout)
        return done.stdout

    def template(
        self,
        values: Values | None = None,
        *,
        release: str = RELEASE,
        namespace: str = NAMESPACE,
        chart: Path = CHART,
    ) -> list[Object]:
        """Every object that the values give, the tests' hook included."""
        text = self.run(
            "template", release, str(chart), "--namespace", namespace, values=values or {}
        )
        return [item for item in yaml.load_all(text, Loader=_LOADER) if item]


def merged(*layers: Values) -> Object:
    """Values over values, as Helm lays them: tables are merged, all else is replaced."""
    result: Object = {}
    for layer in layers:
        for key, value in layer.items():
            old = result.get(key)
            both = isinstance(old, Mapping) and isinstance(value, Mapping)
            result[key] = merged(old, value) if both else value
    return result


def at(path: str, value: object) -> Object:
    """The value at a dotted path, as values."""
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """The objects of one kind."""
    return [item for item in objects if item["kind"] == kind]


def only(objects: list[Object], kind: str) -> Object:
    """The one object of a kind."""
    (found,) = of_kind(objects, kind)
    return found


def environment(objects: list[Object]) -> dict[str, Any]:
    """Name and value (or source) of the operator's environment."""
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


EVERYTHING: Values = {
    "replicas": 2,
    "extraLabels": {"team": "robots"},
    "imagePullSecrets": [{"name": "registry"}],
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {
        "enabled": True,
        "apiServerCidrs": ["10.0.0.1/32"],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
    },
    "pdb": {"enabled": True},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
        }
    ],
    "podAnnotations": {"drivetrain.dev/note": "a"},
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "serviceAccount": {"annotations": {"note": "a"}},
}
"""Values with everything on, for a cluster-wide operator."""
