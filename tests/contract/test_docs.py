"""Documents: every manifest in them is valid, every command exists, every link leads somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from drivetrain_api.compose import compose, parse_run, resolve_task
from drivetrain_operator.cli.main import cli
from drivetrain_operator.kubectl.main import cli as kubectl_cli
from drivetrain_operator.suite.plan import check, outline
from drivetrain_operator.suite.suite_file import load

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
MANIFESTS = sorted(path for path in ROOT.glob("examples/**/*.yaml"))
SUITES = [path for path in MANIFESTS if path.stem == "suite"]
KINDS = {"added", "changed", "fixed", "removed"}
OTHER_PROGRAMS = {
    "make",
    "kubectl",
    "helm",
    "source",
    "tensorboard",
    "apt-get",
    "pip",
    "wandb",
    ".venv/bin/pre-commit",
}
FORBIDDEN = re.compile(r"/wor[k]/|py[p]i\.org|pythonhoste[d]|/tm[p]/venv")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_manifests_in_the_documents_are_valid(page: Path) -> None:
    for text in blocks(page, "yaml"):
        document = yaml.safe_load(text)
        run = parse_run(document)
        if run.spec.task.entry_point is None:
            compose(run.spec, resolve_task(run.spec))


def test_suites_in_the_documents_and_examples_are_valid(tmp_path: Path) -> None:
    titled = re.compile(r"^```yaml title=\"[^\"]+\"\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    shown = [text for page in PAGES for text in titled.findall(page.read_text())]
    texts = [text for text in shown if "\nkind: Suite\n" in text]
    assert texts
    for text in (*texts, *(path.read_text() for path in SUITES)):
        path = tmp_path / "suite.yaml"
        path.write_text(text)
        file = load(str(path))
        assert check(file, outline(file), "documents")


@pytest.mark.parametrize("path", sorted(set(MANIFESTS) - set(SUITES)), ids=named)
def test_examples_are_valid(path: Path) -> None:
    drivetrain = Path(sys.executable).with_name("drivetrain")
    done = subprocess.run(
        [drivetrain, "validate", "-f", path.name],
        check=False,
        cwd=path.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check_command(group: click.Group, words: list[str], line: str) -> None:
    """A command of ours with options that it has."""
    command = group.get_command(click.Context(group), words[0])
    assert command is not None, line
    if isinstance(command, click.Group) and len(words) > 1:
        check_command(command, words[1:], line)
        return
    if "--" in words:  # what follows is another command
        words = words[: words.index("--")]
    known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
    options = {w.partition("=")[0] for w in words[1:] if w.startswith("-")}
    assert options <= known, f"{line}: no option {options - known}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_in_the_documents_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in blocks(page, "console"):
        for line in block.splitlines():
            if not line.startswith("$ "):
                continue
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:2] == ["kubectl", "drivetrain"]:
                check_command(kubectl_cli, words[2:], line)
            elif words[0] == "drivetrain":
                check_command(cli, words[1:], line)
            else:
                assert words[0] in OTHER_PROGRAMS, line
                if words[0] == "make":
                    assert words[1] in targets, line


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    generated = {
        "cli",
        "exit-codes",
        "kubectl",
        "metrics",
        "runtime-manifest",
        "tasks",
        "trainingrun",
    }
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if "://" in target:
            continue
        path = (page.parent / target).resolve()
        if path.parent == ROOT / "docs" / "reference" and path.stem in generated:
            continue
        assert path.exists(), f"{named(page)} links to {target}"


def test_changelog_fragments_have_a_kind_and_say_something() -> None:
    for path in (ROOT / "changelog.d").iterdir():
        if path.name == "README.md":
            continue
        assert path.suffixes[-2].removeprefix(".") in KINDS, path.name
        assert path.suffix == ".md", path.name
        assert path.read_text().strip(), path.name


def test_the_project_names_no_machine() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\0")
    for name in filter(None, listed):
        path = ROOT / name
        if path.suffix in {".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".json", ""}:
            found = FORBIDDEN.search(path.read_text(errors="replace"))
            assert found is None, f"{name}: {found}"
