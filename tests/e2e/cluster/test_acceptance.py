"""What the guide promises: from an empty cluster to a trained policy, command by command."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cluster.conftest import CHART, ROOT, Images
from tests.support.kubernetes.api import Object, wait_for
from tests.support.kubernetes.inventory import Inventory, Item
from tests.support.kubernetes.kubectl import Kubectl
from tests.support.kubernetes.terminal import Guide, Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.empty_cluster]

GUIDE = Guide(ROOT / "docs" / "guide" / "cluster.md")
EXAMPLE = "examples/half-cheetah-sac.yaml"
NAME = "half-cheetah-sac"
SYSTEM, NAMESPACE = "drivetrain-system", "robots"
SHORT_STEPS = 6_000
"""Of the edited example: about a minute on two cores, a checkpoint in each quarter."""
REPORTS = "{.status.attempt} {.status.progress.envSteps}{'\\n'}"
WATCH = f'kubectl get trun {NAME} -w -o jsonpath="{REPORTS}"'
"""A second watch, beside the guide's, of attempt and step alone."""


class Story:
    """One user's afternoon with an empty cluster."""

    def __init__(self, terminal: Terminal, kubectl: Kubectl, images: Images) -> None:
        self.type = terminal
        self.folder = terminal.folder
        self.images = images
        self.before = Inventory.take(kubectl)
        self.admin = kubectl
        self.kubectl = kubectl.within(NAMESPACE)
        shutil.copytree(CHART, self.folder / "charts" / "drivetrain")
        shutil.copytree(ROOT / "examples", self.folder / "examples")

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.kubectl.get("trun", NAME).get("status") or {}
        assert status.get("phase") != "Failed", json.dumps(status, indent=1)
        return status

    def steps(self) -> int:
        return int((self.status().get("progress") or {}).get("envSteps", 0))

    def attempt(self) -> int:
        return int(self.status().get("attempt", 0))

    # -- chapters --------------------------------------------------------------------------

    def install(self) -> None:
        values = GUIDE.file("values.yaml")
        values["image"] = _image(self.images.operator.repository, self.images.operator.tag)
        trainer = self.images.trainer
        values["trainer"]["image"] = _image(trainer.repository, trainer.tag)
        (self.folder / "values.yaml").write_text(yaml.safe_dump(values))
        self.type(
            "helm install drivetrain charts/drivetrain --namespace drivetrain-system"
            " --create-namespace --values values.yaml --wait",
            300.0,
        )
        tested = self.type("helm test drivetrain --namespace drivetrain-system", 300.0)
        assert re.search(r"^Phase: +Succeeded$", tested, re.MULTILINE), tested
        self.type("kubectl create namespace robots")
        self.type("kubectl label namespace robots pod-security.kubernetes.io/enforce=restricted")
        self.type("kubectl config set-context --current --namespace robots")
        for path in sorted(self.folder.glob("examples/**/*.yaml")):
            if path.stem == "suite":
                continue  # no object of a cluster
            self.kubectl("apply", "--validate=strict", "--dry-run=server", "-f", path)

    def train(self, total: int, limit_s: float) -> tuple[str, list[tuple[int, int]]]:
        """The run from its beginning to its end; what two watches showed meanwhile."""
        with ExitStack() as stack:
            self.type("kubectl apply -f examples/half-cheetah-sac.yaml")
            table = stack.enter_context(self.type.beside("kubectl get trun -w"))
            reports = stack.enter_context(self.type.beside(WATCH, of_guide=False))
            wait_for(lambda: self.steps() >= total // 8, f"steps of {NAME}", limit_s, 0.5)
            self.look()
            self.pause(total)
            wait_for(lambda: self.status().get("phase") == "Complete", "the end", limit_s, 0.5)
            self.type(f"kubectl wait trun {NAME} --for condition=Complete --timeout 2h", limit_s)
            wait_for(lambda: "Complete" in table.read_text(), "the end in the table")
            return table.read_text(), pairs(reports.read_text())

    def look(self) -> None:
        listed = self.type("kubectl drivetrain list")
        assert re.search(rf"^{NAME} +Running +sac +half_cheetah", listed, re.MULTILINE), listed
        described = self.type(f"kubectl drivetrain describe {NAME}")
        for words in (
            f"Name:      {NAMESPACE}/{NAME}",
            "Phase:     Running: attempt 1: 1 of 1 pods running",
            f"PersistentVolumeClaim {NAME}-storage",
            "steps/s",
        ):
            assert words in described, described
        assert self.type(f"kubectl drivetrain logs {NAME} --tail 20").strip()

    def pause(self, total: int) -> None:
        self.type(f"kubectl drivetrain suspend {NAME} --wait", 300.0)
        held = self.status()
        assert held["phase"] == "Suspended"
        assert 0 < held["progress"]["checkpointEnvSteps"] < total
        pods = self.kubectl.list("pods")  # an ended one awaits its kubelet for a moment
        assert {pod["status"]["phase"] for pod in pods} <= {"Succeeded", "Failed"}
        assert self.kubectl.list("jobs") == []
        self.type(f"kubectl drivetrain resume {NAME} --wait", 300.0)

    def fetch(self) -> Path:
        listed = self.type(f"kubectl drivetrain artifacts {NAME}")
        reader = GUIDE.file("reader.yaml")
        reader["spec"]["containers"][0]["image"] = self.images.trainer.name
        (self.folder / "reader.yaml").write_text(yaml.safe_dump(reader))
        self.type("kubectl apply -f reader.yaml")
        self.type("kubectl wait pod reader --for condition=Ready --timeout 5m", 320.0)
        self.type("kubectl cp reader:/storage policy", 300.0)
        self.type("kubectl delete pod reader --grace-period 1")
        for artifact in self.status()["artifacts"]:
            assert artifact["sha256"] in listed, listed
            path = self.folder / "policy" / artifact["uri"]
            assert digest(path) == artifact["sha256"], artifact
        return self.folder / "policy"

    def uninstall(self) -> None:
        """What stays is what `keep` keeps; then nothing at all."""
        claimed = self.kubectl.get("pvc", f"{NAME}-storage")["metadata"]["uid"]
        self.type("helm uninstall drivetrain --namespace drivetrain-system --wait", 300.0)
        assert NAME in self.type("kubectl get trun")
        gone(self.left, 120.0)
        assert self.kubectl.get("pvc", f"{NAME}-storage")["metadata"]["uid"] == claimed

        self.type("kubectl delete crd trainingruns.drivetrain.dev")
        gone(self.children, 120.0)
        self.type("kubectl delete namespace drivetrain-system robots", 300.0)
        gone(lambda: self.after().names(), 60.0)

    def after(self) -> Inventory:
        return Inventory.take(self.admin).beyond(self.before)

    def left(self) -> list[str]:
        """What an uninstall left beside the definition, the runs and what they own."""
        now = self.after()
        kept = [
            *(item for item in now.of_kind("CustomResourceDefinition", "TrainingRun")),
            *(item for item in now.of_kind("APIService") if "drivetrain.dev" in item.name),
            *self.namespaces(now),
        ]
        return now.without(kept).names()

    def children(self) -> list[str]:
        now = self.after()
        return now.without(self.namespaces(now)).names()

    def namespaces(self, now: Inventory) -> list[Item]:
        return [item for item in now.within(SYSTEM, NAMESPACE) if item.kind == "Namespace"]


def gone(look: Callable[[], list[str]], timeout_s: float) -> None:
    """Wait until nothing is left; tells what is."""
    end = time.monotonic() + timeout_s
    while left := look():
        assert time.monotonic() < end, f"left after {timeout_s:g} s: {left}"
        time.sleep(0.5)


def _image(repository: str, tag: str) -> Object:
    return {"repository": repository, "tag": tag}


def digest(path: Path) -> str:
    """As the status has it: of a file, or of the manifest of a checkpoint's folder."""
    file = path / "manifest.json" if path.is_dir() else path
    return hashlib.sha256(file.read_bytes()).hexdigest()


def pairs(text: str) -> list[tuple[int, int]]:
    """Attempt and environment steps of each report."""
    found = (line.split() for line in text.splitlines())
    return [(int(words[0]), int(words[1])) for words in found if len(words) == 2]


def shorten(path: Path) -> None:
    """Make the example fit for every day."""
    run = yaml.safe_load(path.read_text())
    run["spec"]["training"]["totalEnvSteps"] = SHORT_STEPS
    run["spec"]["evaluator"] = {"interval": SHORT_STEPS // 2, "episodes": 1}
    run["spec"]["checkpoint"]["interval"] = SHORT_STEPS // 4
    path.write_text(yaml.safe_dump(run))


@pytest.fixture
def story(kubectl: Kubectl, images: Images, tmp_path: Path) -> Iterator[Story]:
    terminal = Terminal(tmp_path, kubectl)
    story = Story(terminal, kubectl, images)
    yield story
    # Waited for: the next test installs into the same namespace.
    story.admin("delete", "namespace", SYSTEM, NAMESPACE, "--ignore-not-found", timeout_s=300.0)
    story.admin("delete", "crd", "trainingruns.drivetrain.dev", "--ignore-not-found")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(SHORT_STEPS, id="short", marks=pytest.mark.timeout(900)),
        pytest.param(100_000, id="whole", marks=[pytest.mark.nightly, pytest.mark.timeout(5400)]),
    ],
)
def test_from_an_empty_cluster_to_a_policy_and_back(story: Story, steps: int) -> None:
    if steps == SHORT_STEPS:
        shorten(story.folder / EXAMPLE)
    story.install()

    table, reports = story.train(steps, limit_s=steps * 0.05 + 200.0)

    check_table(table)
    assert {attempt for attempt, _ in reports} == {1, 2}
    axis = [step for _, step in reports]
    assert axis == sorted(axis), "the step axis goes on where the run was suspended"
    assert axis[-1] == steps
    check_status(story.status(), steps)

    policy = story.fetch()
    (summary,) = policy.glob("logs/sac/half_cheetah/*/run_summary.json")
    assert json.loads(summary.read_text())["total_env_steps"] == steps
    played = story.type("drivetrain play policy/logs/sac/half_cheetah/*_mujoco --no-video", 300.0)
    assert "10 episodes" in played, played

    story.uninstall()

    told = [command for command in GUIDE.commands() if not command.startswith("pip ")]
    assert story.type.typed == told


def check_table(table: str) -> None:
    header, *rows = table.splitlines()
    columns = "NAME PHASE ALGO TASK RANKS PROGRESS STEPS/S REWARD RESTARTS AGE"
    assert header.split() == columns.split(), table
    phases = [row.split()[1] for row in rows]
    order = list(dict.fromkeys(phases))
    assert [phase for phase in order if phase in {"Running", "Suspended", "Complete"}] == [
        "Running",
        "Suspended",
        "Complete",
    ], table
    figures = re.findall(r"half_cheetah +1 +(\d+)% +(\d+\.\d+) +(-?\d+\.\d+)? +0 ", table)
    percents = [int(percent) for percent, _, _ in figures]
    assert percents == sorted(percents), table
    assert len({percent for percent in percents if 0 < percent < 100}) >= 2, table
    assert percents[-1] == 100, table
    assert all(float(speed) > 0 for _, speed, _ in figures), table


def check_status(status: dict[str, Any], steps: int) -> None:
    told = json.dumps(status, indent=1)
    assert status["attempt"] == 2, told
    assert status["restarts"] == 0, told
    reasons = [record["reason"] for record in status["history"]]
    assert reasons == ["SuspendedBySpec", "TrainingComplete"], told
    assert status["runSummary"]["status"] == "completed", told
    assert status["runSummary"]["totalEnvSteps"] == steps, told
    assert {"run_summary", "run_config", "last_checkpoint", "best_checkpoint"} <= {
        artifact["name"] for artifact in status["artifacts"]
    }, told
