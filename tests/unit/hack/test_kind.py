"""hack/kind: the script against programs that only write down what they are asked."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.support.kubernetes.programs import Program, ensure

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "hack" / "kind" / "up.sh"
CONFIGURATION = SCRIPT.with_name("cluster.yaml")
PROGRAMS = ("docker", "kind", "kubectl", "helm")

STUB = """#!/bin/bash
echo "$(basename "$0") $*" >> "$CALLS"
case "$(basename "$0") $1 $2" in
  "docker info "*) exit "${DOCKER_INFO:-0}" ;;
  "kind get clusters") echo "$CLUSTERS" ;;
  "kubectl --context "*) cat > /dev/null < /dev/stdin; echo "made: object" ;;
esac
"""


@dataclass(frozen=True)
class Desk:
    """A PATH of stubs, and what they were asked."""

    folder: Path

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        tools = f"{self.folder}{os.pathsep}/usr/bin{os.pathsep}/bin"
        return subprocess.run(
            [SCRIPT, *arguments],
            env={"PATH": tools, "CALLS": str(self.folder / "calls"), "CLUSTERS": "", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        return (
            [shlex.split(line) for line in path.read_text().splitlines()] if path.exists() else []
        )

    def call(self, *start: str) -> list[str]:
        """The only call that starts so."""
        (found,) = (call for call in self.calls if call[: len(start)] == list(start))
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    for program in PROGRAMS:
        stub = tmp_path / program
        stub.write_text(STUB)
        stub.chmod(0o755)
    return Desk(tmp_path)


def test_from_nothing_to_an_applied_run(desk: Desk) -> None:
    done = desk.run()
    assert done.returncode == 0, done.stderr
    steps = [call[:2] for call in desk.calls if call[:2] != ["docker", "info"]]
    assert steps == [
        ["kind", "get"],
        ["kind", "create"],
        ["docker", "build"],
        ["docker", "build"],
        ["kind", "load"],
        ["helm", "upgrade"],
        *[["kubectl", "--context"]] * 3,
    ]
    assert "kubectl --context kind-drivetrain --namespace default get trun -w" in done.stdout


def test_what_is_built_is_loaded_and_installed(desk: Desk) -> None:
    assert desk.run().returncode == 0
    built = [call[call.index("-t") + 1] for call in desk.calls if call[:2] == ["docker", "build"]]
    assert [name.partition(":")[0] for name in built] == [
        "drivetrain-operator",
        "drivetrain-trainer",
    ]
    assert desk.call("kind", "load")[-2:] == built
    values = {w.split("=")[0]: w.split("=")[1] for w in desk.call("helm", "upgrade") if "=" in w}
    operator, trainer = (name.split(":") for name in built)
    assert values == {
        "image.repository": operator[0],
        "image.tag": operator[1],
        "trainer.image.repository": trainer[0],
        "trainer.image.tag": trainer[1],
    }


def test_values_that_the_script_sets_are_in_the_chart(desk: Desk) -> None:
    assert desk.run().returncode == 0
    known = yaml.safe_load((ROOT / "charts" / "drivetrain" / "values.yaml").read_text())
    for word in desk.call("helm", "upgrade"):
        if "=" in word:
            place = known
            for key in word.split("=")[0].split("."):
                assert key in place, word
                place = place[key]


def test_a_cluster_that_is_there_is_kept(desk: Desk) -> None:
    assert desk.run(CLUSTERS="drivetrain").returncode == 0
    assert ["kind", "create"] not in [call[:2] for call in desk.calls]


def test_images_that_are_given_are_not_built(desk: Desk) -> None:
    given = {
        "OPERATOR_IMAGE": "registry.example:5000/operator:1",
        "TRAINER_IMAGE": "registry.example:5000/trainer:2",
    }
    assert desk.run(**given).returncode == 0
    assert ["docker", "build"] not in [call[:2] for call in desk.calls]
    assert desk.call("kind", "load")[-2:] == list(given.values())
    assert "image.repository=registry.example:5000/operator" in desk.call("helm", "upgrade")


def test_the_trainer_is_built_for_the_cpu_unless_asked(desk: Desk) -> None:
    assert desk.run(VARIANT="cuda").returncode == 0
    trainer = next(call for call in desk.calls if "trainer/Dockerfile" in call)
    assert "VARIANT=cuda" in trainer


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("--nodes",), {}, "unknown argument --nodes"),
        ((), {"DOCKER_INFO": "1"}, "the Docker engine does not answer"),
        ((), {"RUN": "nowhere.yaml"}, "RUN=nowhere.yaml is no file"),
        ((), {"OPERATOR_IMAGE": "registry.example:5000/operator"}, "has no tag"),
    ],
)
def test_refusals_say_what_is_wrong(
    desk: Desk, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    done = desk.run(*arguments, **environment)
    assert done.returncode != 0
    assert message in done.stderr
    assert ["helm", "upgrade"] not in [call[:2] for call in desk.calls]


def test_a_missing_program_is_named(desk: Desk) -> None:
    (desk.folder / "kind").unlink()
    done = desk.run()
    assert done.returncode != 0
    assert "kind is not on PATH" in done.stderr


def test_down_deletes_the_cluster_and_does_nothing_else(desk: Desk) -> None:
    assert desk.run("--down", CLUSTER="mine").returncode == 0
    assert desk.calls == [["kind", "delete", "cluster", "--name", "mine"]]


def test_help_names_every_option_and_variable(desk: Desk) -> None:
    told = desk.run("--help").stdout
    text = SCRIPT.read_text()
    variables = set(re.findall(r"\$\{([A-Z_]+):-", text))
    assert variables
    for name in ("--no-run", "--down", *variables):
        assert name in told
    assert desk.calls == []


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize(("change", "refused"), [("", False), ("    rolle: worker\n", True)])
def test_kind_reads_the_cluster_configuration(tmp_path: Path, change: str, refused: bool) -> None:
    program = ensure(Program.KIND)[Program.KIND]
    configuration = tmp_path / "cluster.yaml"
    configuration.write_text(CONFIGURATION.read_text() + change)
    done = subprocess.run(
        [program, "create", "cluster", "--config", configuration],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(tmp_path / "c"), "DOCKER_INFO": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0  # there is no engine
    assert ("unable to decode config" in done.stderr) is refused, done.stderr
