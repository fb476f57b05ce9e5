"""Programs are found, downloaded or built once, and never in another version."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.kubernetes import program_sources, programs
from tests.support.kubernetes.program_table import (
    ASSETS_VARIABLE,
    SOURCES,
    MissingProgramsError,
    Program,
    Source,
)
from tests.support.kubernetes.programs import ensure, find, main

RIGHT = "#!/bin/sh\necho v1.2.3\n"
WRONG = "#!/bin/sh\necho v1.2.4\n"
GO = """#!/bin/sh
case "$1" in
  mod) printf 'module m\\n\\ngo 1.25.0\\n\\ngodebug default=go1.24\\n' > their.mod
       printf '\\tk8s.io/api => ./staging/src/k8s.io/api\\n' >> their.mod
       printf '{"GoMod": "%s/their.mod"}' "$PWD" ;;
  build) echo built >> "$BUILDS"; cp go.mod "$BUILDS.mod"; echo "$@" > "$BUILDS.arguments"
         sleep 0.2
         printf '#!/bin/sh\\necho v1.2.3\\n' > "$6" ;;
esac
"""


class Releases:
    """A server of releases; counts what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        releases = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                releases.asked.append(self.path)
                content = releases.files.get(self.path)
                self.send_response(404 if content is None else 200)
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def put(self, path: str, content: bytes, digest: str | None = None) -> None:
        self.files[path] = content
        told = digest or hashlib.sha256(content).hexdigest()
        self.files[f"{path}.sha256"] = f"{told}  {path.lstrip('/')}\n".encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def releases() -> Iterator[Releases]:
    started = Releases()
    yield started
    started.close()


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, releases: Releases) -> Path:
    """A machine that has nothing; gives the folder that its PATH names besides the usual."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BUILDS", str(tmp_path / "builds"))
    monkeypatch.delenv(ASSETS_VARIABLE, raising=False)
    monkeypatch.delenv("CI", raising=False)
    release = f"{releases.url}/{{program}}"
    source = Source("kwok", "1.2.3", "example.org/kwok", "/cmd/{}", release, f"{release}.sha256")
    monkeypatch.setitem(SOURCES, Program.KWOK, source)
    programs.is_right.cache_clear()
    program_sources.forget_hosts()
    return bin_folder


def install(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)
    return path


def told(lines: list[str]) -> str:
    return "\n".join(lines)


# -- finding -----------------------------------------------------------------------------------


def test_a_named_folder_goes_before_the_path(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = install(machine, "kwok", RIGHT)
    assert find(Program.KWOK) == on_path
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path / "assets"))
    named = install(tmp_path / "assets", "kwok", RIGHT)

    assert find(Program.KWOK) == named


@pytest.mark.parametrize("script", [WRONG, "#!/bin/sh\nexit 1\n", "", "#!/no/such/program\n"])
def test_what_is_not_the_right_version_is_passed_over(machine: Path, script: str) -> None:
    install(machine, "kwok", script)

    assert find(Program.KWOK) is None


def test_a_file_that_may_not_run_is_passed_over(machine: Path) -> None:
    install(machine, "kwok", RIGHT).chmod(0o644)

    assert find(Program.KWOK) is None


def test_what_go_noted_is_enough(machine: Path) -> None:
    path = install(machine, "kwok", "#!/bin/sh\nexit 1\n\tdep\texample.org/kwok\tv1.2.3\th1:x\n")

    assert find(Program.KWOK) == path


# -- downloading -------------------------------------------------------------------------------


def test_a_release_is_downloaded_once(releases: Releases) -> None:
    releases.put("/kwok", RIGHT.encode())
    lines: list[str] = []
    first = ensure(Program.KWOK, report=lines.append)[Program.KWOK]
    asked = len(releases.asked)
    second = ensure(Program.KWOK)[Program.KWOK]

    assert first == second
    assert first.read_text() == RIGHT
    assert len(releases.asked) == asked
    assert f"downloading {releases.url}/kwok" in told(lines)


def test_a_release_may_be_an_archive(releases: Releases, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("kwok-v1.2.3/kwok")
        entry.size = len(RIGHT)
        archive.addfile(entry, io.BytesIO(RIGHT.encode()))
    releases.put("/1.2.3.tar.gz", packed.getvalue())
    release = f"{releases.url}/{{version}}.tar.gz"
    source = Source("kwok", "1.2.3", "example.org/kwok", "", release, f"{release}.sha256")
    monkeypatch.setitem(SOURCES, Program.KWOK, source)

    assert ensure(Program.KWOK)[Program.KWOK].read_text() == RIGHT


@pytest.mark.parametrize(
    ("content", "digest", "why"),
    [
        (RIGHT, "0" * 64, "has another digest than the published one"),
        (WRONG, None, "download gave another version"),
        (None, None, r"no download \(Not Found\)"),
    ],
)
def test_a_release_that_is_not_what_it_should_be_is_not_taken(
    releases: Releases, content: str | None, digest: str | None, why: str
) -> None:
    if content is not None:
        releases.put("/kwok", content.encode(), digest)

    with pytest.raises(MissingProgramsError, match=f"{why} and no Go to build with$"):
        ensure(Program.KWOK)
    assert find(Program.KWOK) is None


def test_a_host_that_is_not_there_is_asked_once(releases: Releases) -> None:
    releases.close()
    for _ in range(2):
        with pytest.raises(MissingProgramsError, match="Connection refused"):
            ensure(Program.KWOK)


# -- building ----------------------------------------------------------------------------------


def test_a_module_is_built_where_there_is_no_release(machine: Path, tmp_path: Path) -> None:
    install(machine, "go", GO)
    lines: list[str] = []
    path = ensure(Program.KWOK, report=lines.append)[Program.KWOK]

    assert path.parent == tmp_path / "cache" / "drivetrain" / "programs" / "kwok-1.2.3"
    assert (tmp_path / "builds.mod").read_text().splitlines()[1:] == [
        "go 1.25.0",
        "godebug default=go1.24",
        "require example.org/kwok v1.2.3",
    ]
    assert (tmp_path / "builds.arguments").read_text().endswith("kwok example.org/kwok/cmd/kwok\n")
    assert "building example.org/kwok" in lines[0]
    assert "built in" in lines[1]


def test_what_kubernetes_replaces_by_folders_is_replaced_by_what_it_published(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(machine, "go", GO)
    source = Source("kubernetes", "1.2.3", "k8s.io/kubernetes", "/cmd/{}")
    monkeypatch.setitem(SOURCES, Program.KWOK, source)
    monkeypatch.setattr(program_sources, "KUBERNETES", source)
    ensure(Program.KWOK)

    assert "replace k8s.io/api => k8s.io/api v0.2.3" in (tmp_path / "builds.mod").read_text()
    arguments = (tmp_path / "builds.arguments").read_text()
    assert "version.gitVersion=v1.2.3" in arguments
    assert "version.gitMinor=2" in arguments


def test_callers_at_once_build_once(machine: Path, tmp_path: Path) -> None:
    install(machine, "go", GO)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ensure(Program.KWOK)[Program.KWOK], range(4)))

    assert len(set(found)) == 1
    assert (tmp_path / "builds").read_text() == "built\n"


def test_a_build_that_fails_says_why(machine: Path) -> None:
    install(machine, "go", "#!/bin/sh\necho first >&2\necho no such module >&2\nexit 1\n")

    with pytest.raises(MissingProgramsError, match=r"go mod failed \(no such module\)"):
        ensure(Program.KWOK)


# -- the command -------------------------------------------------------------------------------


def test_the_command_tells_where_they_are(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = install(machine, "kwok", RIGHT)

    assert main(["kwok", "kwok"]) == 0
    assert capsys.readouterr().out == f"kwok 1.2.3 {path}\n"


@pytest.mark.parametrize(
    ("arguments", "in_ci", "code"),
    [(["kwok"], False, 1), (["--optional", "kwok"], False, 0), (["--optional", "kwok"], True, 1)],
)
def test_what_cannot_be_had_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    in_ci: bool,
    code: int,
) -> None:
    if in_ci:
        monkeypatch.setenv("CI", "true")

    assert main(arguments) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"cannot have kwok 1.2.3 not found in {ASSETS_VARIABLE}, PATH or ")


def test_an_unknown_name_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["no-such"])

    assert "control-plane" in capsys.readouterr().err
