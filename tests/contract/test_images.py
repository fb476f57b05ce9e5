"""Dockerfiles: what goes in, and what of it is pinned."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from tests.support.kubernetes.images import INPUTS, input_files

ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted(ROOT.glob("*/Dockerfile"))
CONSTRAINTS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line
)


def named(path: Path) -> str:
    return path.parent.name


def test_the_ignore_file_lets_through_what_the_names_of_images_are_made_of() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*", "everything is left out first"
    assert {line[1:] for line in lines if line.startswith("!")} == set(INPUTS)


def test_inputs_are_sources_alone() -> None:
    names = {str(path.relative_to(ROOT)) for path in input_files(ROOT)}
    assert "crds/drivetrain_api/trainingrun.py" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith("Dockerfile")]


@pytest.mark.parametrize("path", DOCKERFILES, ids=named)
def test_images_run_as_a_user_by_number_and_start_a_program_of_ours(path: Path) -> None:
    last = path.read_text().rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (.+)$", last, re.MULTILINE)[-1] == "1000:1000"
    (entrypoint,) = re.findall(r'^ENTRYPOINT \["([^"]+)"\]$', last, re.MULTILINE)
    assert f"\n{entrypoint} = " in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("path", DOCKERFILES, ids=named)
def test_the_base_is_an_argument_with_a_pinned_default(path: Path) -> None:
    text = path.read_text()
    assert re.search(r"^ARG BASE=\S+:3\.\d+\.\d+-\S+$", text, re.MULTILINE)
    stages = set(re.findall(r" AS (\w+)$", text, re.MULTILINE))
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) <= {"${BASE}", *stages}


@pytest.mark.parametrize("path", DOCKERFILES, ids=named)
def test_every_install_is_constrained_or_takes_no_dependencies(path: Path) -> None:
    commands = re.findall(r"bin/pip install (?:.*\\\n)*.*", path.read_text())
    assert commands
    for command in commands:
        assert "--constraint" in command or "--no-deps" in command, command


def test_the_torch_layer_is_built_from_pins_of_all_that_torch_needs() -> None:
    text = (ROOT / "trainer" / "Dockerfile").read_text()
    (pattern,) = re.findall(r"grep -E '([^']+)'", text)
    kept = {name for name in CONSTRAINTS if re.match(pattern, f"{name}==1")}
    assert {name for name in needed("torch") if name in CONSTRAINTS} <= kept


def needed(name: str) -> set[str]:
    """A distribution and all that it needs, as far as it is installed here."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        found.add(name)
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        plain = [text for text in requirements if "extra ==" not in text]
        ahead += [re.split(r"[^\w.-]", text)[0].lower().replace("_", "-") for text in plain]
    return found
