"""Manifests that we give to users, applied as they apply them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from tests.support.kubernetes.kubectl import Kubectl

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in ROOT.glob("examples/**/*.yaml") if path.stem != "suite")
"""Manifests; a suite is no object of a cluster."""
PAGES = sorted(ROOT.glob("docs/**/*.md"))
STRICTLY = ("--validate=strict", "--dry-run=server")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", EXAMPLES, ids=named)
def test_a_server_takes_an_example(kubeconfig: Path, namespace: str, path: Path) -> None:
    kubectl = Kubectl(kubeconfig, namespace)

    said = kubectl("apply", *STRICTLY, "-f", path)

    assert re.fullmatch(r"trainingrun.drivetrain.dev/\S+ created \(server dry run\)\n", said)


def test_a_server_takes_the_manifests_of_the_documentation(
    kubeconfig: Path, namespace: str
) -> None:
    kubectl = Kubectl(kubeconfig, namespace)
    shown = [
        yaml.safe_load(text)
        for page in PAGES
        for text in re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    ]
    for number, run in enumerate(shown):
        run["metadata"]["name"] += f"-{number}"

    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": shown})
    said = kubectl("apply", *STRICTLY, "-f", "-", stdin=document)

    assert said.count("created (server dry run)") == len(shown) > 0
