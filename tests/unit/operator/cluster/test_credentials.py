from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drivetrain_operator.cluster.credentials import ConnectionSettingsError, Credentials


def load(**options: Any) -> Credentials:
    return asyncio.run(Credentials.load(now=0.0, **options))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    folder = tmp_path / "home"
    (folder / ".kube").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.crt"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-subj", "/CN=ca", "-days", "9", "-out", str(path)),
            *("-keyout", str(path.with_suffix(".key"))),
        ],
        check=True,
        capture_output=True,
    )
    return path


@pytest.fixture
def pod(tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service account as it is mounted."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("first\n")
    (folder / "namespace").write_text("system")
    (folder / "ca.crt").write_bytes(certificate.read_bytes())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


def kubeconfig(path: Path, user: str = "{token: abc}", cluster: str = "") -> Path:
    path.write_text(
        f"""
current-context: here
contexts:
- {{name: here, context: {{cluster: c, user: u, namespace: team}}}}
- {{name: there, context: {{cluster: c, user: u}}}}
clusters: [{{name: c, cluster: {{server: "https://example.test:6443/", {cluster}}}}}]
users: [{{name: u, user: {user}}}]
"""
    )
    return path


def test_in_a_pod(pod: Path) -> None:
    found = load(service_account=pod)
    assert (found.host, found.namespace) == ("https://[fd00::1]:443", "system")
    assert found.authorization() == "bearer first"
    assert found.ssl.verify_mode is ssl.CERT_REQUIRED


def test_a_pods_token_is_read_again_each_minute(pod: Path) -> None:
    async def scenario() -> None:
        found = await Credentials.load(service_account=pod, now=0.0)
        (pod / "token").write_text("second")
        assert not found.due(59.0)
        assert found.due(60.0)
        assert await found.refresh(60.0)
        assert found.authorization() == "bearer second"
        assert not found.due(61.0)
        for broken in ("", None):
            if broken is None:
                (pod / "token").unlink()
            else:
                (pod / "token").write_text(broken)
            assert not await found.refresh(130.0)
            assert found.authorization() == "bearer second", "what was known stays"

    asyncio.run(scenario())


def test_refused_credentials_are_loaded_again_but_not_for_every_request(pod: Path) -> None:
    async def scenario() -> None:
        found = await Credentials.load(service_account=pod, now=0.0)
        (pod / "token").write_text("second")
        assert await found.refresh(1.0, refused=True)
        assert found.authorization() == "bearer second"
        (pod / "token").write_text("third")
        assert not await found.refresh(3.0, refused=True)
        assert await found.refresh(6.0, refused=True)
        assert found.authorization() == "bearer third"

    asyncio.run(scenario())


def test_a_kubeconfig(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", cluster="tls-server-name: other.test")
    found = load(kubeconfig=path)
    assert (found.host, found.namespace) == ("https://example.test:6443", "team")
    assert (found.authorization(), found.server_name) == ("Bearer abc", "other.test")
    assert load(kubeconfig=path, context="there").namespace == "default"


def test_what_is_asked_for_comes_before_the_environment_the_pod_and_the_home(
    tmp_path: Path, pod: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig(home / ".kube" / "config", "{token: of-home}")
    assert load(service_account=tmp_path / "none").authorization() == "Bearer of-home"
    assert load(service_account=pod).authorization() == "bearer first"
    assert load(service_account=pod, context="there").authorization() == "Bearer of-home"
    named = kubeconfig(tmp_path / "named", "{token: of-environment}")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{named}")
    assert load(service_account=pod).authorization() == "Bearer of-environment"
    asked = kubeconfig(tmp_path / "asked", "{token: asked-for}")
    assert load(service_account=pod, kubeconfig=asked).authorization() == "Bearer asked-for"


def test_a_client_certificate_speaks_without_a_token(tmp_path: Path, certificate: Path) -> None:
    user = f"{{client-certificate: {certificate}, client-key: {certificate.with_suffix('.key')}}}"
    found = load(kubeconfig=kubeconfig(tmp_path / "k", user))
    assert found.authorization() is None


def test_an_exec_plugin_is_run_again_when_its_token_is_refused(tmp_path: Path) -> None:
    counter = tmp_path / "runs"
    counter.write_text("")
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        f"""
import json, pathlib
path = pathlib.Path({str(counter)!r})
path.write_text(path.read_text() + "x")
status = {{"token": "t%d" % len(path.read_text()), "expirationTimestamp": "2999-01-01T00:00:00Z"}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
    "status": status}}))
"""
    )
    user = (
        "{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, "
        f"command: {sys.executable}, args: [{plugin}]}}}}"
    )

    async def scenario() -> None:
        found = await Credentials.load(kubeconfig=kubeconfig(tmp_path / "k", user), now=0.0)
        assert found.authorization() == "Bearer t1"
        assert not found.due(1e9)
        assert await found.refresh(100.0, refused=True)
        assert found.authorization() == "Bearer t2"

    asyncio.run(scenario())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_no_proxy_of_the_environment_serves_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://other:2")
    path = kubeconfig(tmp_path / "k")
    path.write_text(path.read_text().replace("example.test", host))
    assert load(kubeconfig=path).proxy() is None


PROXIES = [
    ("proxy-url: 'http://of-file:1'", {"HTTPS_PROXY": "http://other:2"}, "http://of-file:1"),
    ("", {"HTTPS_PROXY": "http://other:2"}, "http://other:2"),
    ("", {"HTTPS_PROXY": "http://other:2", "NO_PROXY": "example.test"}, None),
    ("", {}, None),
]


@pytest.mark.parametrize(("cluster", "environment", "expected"), PROXIES)
def test_proxy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cluster: str,
    environment: dict[str, str],
    expected: str | None,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert load(kubeconfig=kubeconfig(tmp_path / "k", cluster=cluster)).proxy() == expected


REFUSED = [
    (None, "cannot reach a cluster: no kubeconfig at .*; name one by --kubeconfig or KUBECONFIG"),
    ("", "the kubeconfig at .*/config cannot be read"),
    ("contexts: [", "the kubeconfig at .*/config cannot be read"),
    ("- a list", "the kubeconfig at .*/config cannot be read"),
    ("current-context: x", "the kubeconfig at .*/config cannot be read: .*name x in .*contexts"),
]


@pytest.mark.parametrize(("content", "words"), REFUSED)
def test_a_kubeconfig_that_leads_nowhere_is_refused_in_words(
    home: Path, tmp_path: Path, content: str | None, words: str
) -> None:
    if content is not None:
        (home / ".kube" / "config").write_text(content)
    with pytest.raises(ConnectionSettingsError, match=words):
        load(service_account=tmp_path / "none")


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectionSettingsError, match=f"no kubeconfig at {tmp_path / 'missing'}$"):
        load(kubeconfig=tmp_path / "missing")
