"""How a program is had that is not here: an official release, else a build of its Go module."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from io import BytesIO
from pathlib import Path
from typing import Final

from tests.support.kubernetes.program_table import (
    KUBERNETES,
    SOURCES,
    MissingProgramsError,
    Program,
    Report,
    Source,
)

_CONNECT_S: Final = 5.0
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_SHA256: Final = re.compile(r"\b[0-9a-f]{64}\b")


# -- releases ----------------------------------------------------------------------------------


def download(program: Program, target: Path, report: Report) -> None:
    """Download the release and check it against its published digest.

    Raises:
        MissingProgramsError: There is none, it cannot be reached, or it is not what it should be.
    """
    source = SOURCES[program]
    if not source.download:
        raise MissingProgramsError("no release to download")
    address = _address(source, source.download, program)
    try:
        digests = _fetch(_address(source, source.digest, program)).decode()
        report(f"{program} {source.version}: downloading {address}")
        content = _fetch(address)
    except OSError as error:
        raise MissingProgramsError(f"no download ({_reason(error)})") from error
    if hashlib.sha256(content).hexdigest() not in _digests(digests, address):
        raise MissingProgramsError(f"{address} has another digest than the published one")
    if address.endswith((".tar.gz", ".tgz")):
        content = _member(content, program)
    _place(content, target)


def _address(source: Source, pattern: str, program: Program) -> str:
    return pattern.format(
        version=source.version,
        os="linux",
        arch=_ARCHITECTURES.get(platform.machine(), platform.machine()),
        program=program,
    )


def _digests(text: str, address: str) -> list[str]:
    """Those of the file: of the line that names it, or of a text that names none."""
    name = address.rpartition("/")[2]
    lines = [line for line in text.splitlines() if name in line] or text.splitlines()
    return [digest for line in lines for digest in _SHA256.findall(line)]


_UNREACHABLE: dict[str, str] = {}
"""Hosts that were not reached, and why: a machine without them loses seconds once."""


def forget_hosts() -> None:
    """Ask hosts again that were not reached."""
    _UNREACHABLE.clear()


def _fetch(address: str) -> bytes:
    host = address.split("/")[2]
    if host in _UNREACHABLE:
        raise OSError(_UNREACHABLE[host])
    try:
        with urllib.request.urlopen(address, timeout=_CONNECT_S) as response:
            content: bytes = response.read()
            return content
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except OSError as error:
        _UNREACHABLE[host] = _reason(error)
        raise


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", error))


def _member(archive: bytes, program: Program) -> bytes:
    with tarfile.open(fileobj=BytesIO(archive)) as opened:
        for entry in opened:
            if Path(entry.name).name == program and entry.isfile():
                content = opened.extractfile(entry)
                assert content is not None
                return content.read()
    raise MissingProgramsError(f"the release has no {program}")


def _place(content: bytes, target: Path) -> None:
    partial = target.with_suffix(".partial")
    partial.write_bytes(content)
    partial.chmod(0o755)
    partial.replace(target)


# -- builds ------------------------------------------------------------------------------------


def build(program: Program, target: Path, report: Report) -> None:
    """Build the Go module, as its own project does where that matters.

    Raises:
        MissingProgramsError: There is no Go, or it cannot build the module.
    """
    go = shutil.which("go")
    if go is None:
        raise MissingProgramsError("no Go to build with")
    source = SOURCES[program]
    report(f"{program} {source.version}: building {source.module}; minutes, once a machine")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="drivetrain-build-") as folder:
        home = Path(folder)
        (home / "go.mod").write_text(_build_file(go, home, source))
        package = source.module + source.package.format(program)
        _run(go, home, "build", "-trimpath", "-ldflags", _flags(source), "-o", program, package)
        _place((home / program).read_bytes(), target)
    report(f"{program} {source.version}: built in {time.monotonic() - begun:.0f} s")


def module_folder(program: Program) -> Path:
    """The source of the program's module, for what else is in it, such as a chart.

    Raises:
        MissingProgramsError: There is no Go, or it cannot have the module.
    """
    go = shutil.which("go")
    if go is None:
        raise MissingProgramsError(f"no Go to fetch {SOURCES[program].module} with")
    with tempfile.TemporaryDirectory(prefix="drivetrain-module-") as home:
        return Path(_module(go, Path(home), SOURCES[program])["Dir"])


def _module(go: str, home: Path, source: Source) -> dict[str, str]:
    """What Go tells of a module in its cache; fetched where it is not there."""
    named = f"{source.module}@v{source.version}"
    told: dict[str, str] = json.loads(_run(go, home, "mod", "download", "-json", named))
    return told


def _build_file(go: str, home: Path, source: Source) -> str:
    """go.mod of a module that only requires the other, with the Go behaviour that one asks for."""
    theirs = Path(_module(go, home, source)["GoMod"]).read_text()
    lines = [
        "module drivetrain.dev/programs",
        *re.findall(r"^go \S+|^godebug \S+", theirs, re.MULTILINE),
        f"require {source.module} v{source.version}",
    ]
    if source == KUBERNETES:
        # it replaces the modules that it publishes by folders that the published one lacks
        published = f"v0.{source.version.partition('.')[2]}"
        staged = re.findall(r"^\s+(\S+) => \./staging/", theirs, re.MULTILINE)
        lines += [f"replace {module} => {module} {published}" for module in staged]
    return "\n".join(lines) + "\n"


def _flags(source: Source) -> str:
    if source != KUBERNETES:
        return "-s -w"
    major, minor, _ = source.version.split(".")
    told = {"gitVersion": f"v{source.version}", "gitMajor": major, "gitMinor": minor}
    package = "k8s.io/component-base/version"
    return " ".join(["-s -w", *(f"-X {package}.{key}={value}" for key, value in told.items())])


def _run(go: str, home: Path, *arguments: str) -> str:
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=mod -buildvcs=false",
        "GOWORK": "off",
    }
    done = subprocess.run(
        [go, *arguments], cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise MissingProgramsError(f"go {arguments[0]} failed ({last})")
    return done.stdout
