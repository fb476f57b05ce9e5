"""Reports to a ConfigMap over real TLS: what is sent, what is said of it, what is waited for."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from stand_in_api_server import Answer, StandInApiServer, make_certificate
from structlog.testing import capture_logs

from drivetrain_trainer.launcher.configmap import ConfigMapSink
from drivetrain_trainer.launcher.service_account import ProgressConfigMap, PublishError


def target(server: StandInApiServer) -> ProgressConfigMap:
    return ProgressConfigMap.of("run-progress", server.environ)


def until(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


class TestOnePatch:
    def test_it_is_a_merge_patch_of_the_one_entry(self, server: StandInApiServer) -> None:
        target(server).patch('{"attempt":1}', 5)
        (request,) = server.requests
        assert request.method == "PATCH"
        assert request.path == (
            "/api/v1/namespaces/team-a/configmaps/run-progress?fieldManager=drivetrain-launcher"
        )
        assert request.body == {"data": {"progress": '{"attempt":1}'}}
        assert request.headers["Content-Type"] == "application/merge-patch+json"
        assert request.headers["Authorization"] == "Bearer token-1"

    def test_the_account_is_read_each_time(
        self, server: StandInApiServer, certificate: Path
    ) -> None:
        where = target(server)
        (server.account / "ca.crt").write_text("")
        with pytest.raises(PublishError, match=r"ca\.crt is no certificate authority"):
            where.patch("1", 5)
        (server.account / "ca.crt").write_bytes((certificate / "cert.pem").read_bytes())
        where.patch("2", 5)
        (server.account / "token").write_text("token-2")
        (server.account / "namespace").write_text("team-b\n")
        where.patch("3", 5)
        assert [request.headers["Authorization"] for request in server.requests] == [
            "Bearer token-1",
            "Bearer token-2",
        ]
        assert "/namespaces/team-b/" in server.requests[1].path

    def test_ipv6_works(self, tmp_path: Path, certificate: Path) -> None:
        server = StandInApiServer(tmp_path, certificate, family=socket.AF_INET6)
        try:
            target(server).patch("1", 5)
            assert server.requests[0].headers["Host"].startswith("[::1]:")
            server.script([Answer(503)])
            with pytest.raises(PublishError, match=r"at https://\[::1\]:[0-9]+: 503"):
                target(server).patch("2", 5)
        finally:
            server.close()

    def test_a_proxy_of_the_environment_is_not_asked(
        self, server: StandInApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        target(server).patch("1", 5)
        assert len(server.requests) == 1

    def test_a_server_with_another_certificate_is_not_trusted(
        self, server: StandInApiServer, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        make_certificate(other)
        (server.account / "ca.crt").write_bytes((other / "cert.pem").read_bytes())
        with pytest.raises(PublishError, match="its certificate is not trusted"):
            target(server).patch("secret", 5)
        assert server.requests == []

    @pytest.mark.parametrize(
        ("answer", "words", "hopeless"),
        [
            (Answer(401, "Unauthorized"), "the account's token is not accepted", False),
            (Answer(403, "cannot patch"), "Role and RoleBinding there? (it said: cannot", False),
            (Answer(404, 'configmaps "x" not found'), "it is gone: was the run deleted?", True),
            (Answer(409, "modified"), "somebody else changed it", False),
            (Answer(413), "too large", True),
            (Answer(422, "denied by policy"), "an admission policy, refused the report", True),
            (Answer(429), "busy", False),
            (Answer(500, "etcd\nis away \u2603"), "(it said: etcd is away ?)", False),
            (Answer(301), "301: it is sent again later", False),
        ],
    )
    def test_each_refusal_is_explained(
        self, server: StandInApiServer, answer: Answer, words: str, hopeless: bool
    ) -> None:
        server.script([answer])
        with pytest.raises(PublishError) as caught:
            target(server).patch("1", 5)
        assert str(caught.value).startswith("ConfigMap run-progress at https://127.0.0.1:")
        assert words in str(caught.value)
        assert caught.value.hopeless is hopeless

    @pytest.mark.parametrize(
        "content",
        [b"", b"\xff\xfe", b"[]", b'{"message": 3}', b"null", b"[" * 60_000, b'{"message": "a'],
    )
    def test_an_answer_that_is_no_status_is_not_quoted(
        self, server: StandInApiServer, content: bytes
    ) -> None:
        server.script([Answer(503, raw=content)])
        with pytest.raises(PublishError, match=r": 503: it is sent again later$"):
            target(server).patch("1", 5)

    @pytest.mark.parametrize(
        ("header", "seconds"),
        [("7", 7.0), ("9999", 60.0), ("-1", 0.0), ("nan", 0.0), ("Wed, 21 Oct", 0.0)],
    )
    def test_the_servers_wish_to_wait_is_bounded(
        self, server: StandInApiServer, header: str, seconds: float
    ) -> None:
        server.script([Answer(429, headers={"Retry-After": header})])
        with pytest.raises(PublishError) as caught:
            target(server).patch("1", 5)
        assert caught.value.wait_s == seconds

    def test_silence_is_bounded_and_explained(self, server: StandInApiServer) -> None:
        server.script([Answer(0)])
        with pytest.raises(PublishError, match="no answer in time: is a network policy"):
            target(server).patch("1", 0.2)

    def test_nobody_there_is_explained(self, server: StandInApiServer) -> None:
        where = target(server)
        server.close()
        with pytest.raises(PublishError, match="Connection refused"):
            where.patch("1", 5)

    @pytest.mark.parametrize("name", ["token", "namespace"])
    @pytest.mark.parametrize("content", [None, b"", b"a\nHost: b", b"\xff"])
    def test_an_account_that_is_not_mounted_or_not_one_is_named(
        self, server: StandInApiServer, name: str, content: bytes | None
    ) -> None:
        (server.account / name).unlink()
        if content is not None:
            (server.account / name).write_bytes(content)
        with pytest.raises(PublishError, match=str(server.account / name)):
            target(server).patch("1", 5)
        assert server.requests == []


class Slow:
    """A target that answers when it is told to."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go = threading.Event()
        self.texts: list[str] = []

    def patch(self, text: str, timeout_s: float) -> None:
        self.began.set()
        if not self.go.wait(timeout_s):
            raise PublishError("too slow")
        self.texts.append(text)


class TestSink:
    def test_reports_are_spaced_and_the_newest_wins(self, server: StandInApiServer) -> None:
        sink = ConfigMapSink(target(server), spacing_s=1000)
        sink.publish("1")
        until(lambda: server.requests)
        for text in ("2", "3", "4"):
            sink.publish(text)
        sink.finish(10)
        assert [request.progress for request in server.requests] == ["1", "4"]

    def test_publishing_never_waits(self) -> None:
        slow = Slow()
        sink = ConfigMapSink(slow, spacing_s=0)
        began = time.monotonic()
        for text in ("1", "2", "3"):
            sink.publish(text)
        assert time.monotonic() - began < 0.5
        assert slow.began.wait(10)
        slow.go.set()
        sink.finish(10)
        assert slow.texts[-1] == "3"

    def test_a_failure_is_told_once_and_tried_again(
        self, server: StandInApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("drivetrain_trainer.launcher.configmap._LEAST_BACKOFF", 0.01)
        server.script([Answer(403)] * 3 + [Answer(503)])
        sink = ConfigMapSink(target(server), spacing_s=0)
        structlog.contextvars.bind_contextvars(run="run")
        with capture_logs([structlog.contextvars.merge_contextvars]) as logs:
            sink.publish("1")
            until(lambda: len(server.requests) == 5)
            sink.finish(10)
        structlog.contextvars.clear_contextvars()
        assert [entry["event"] for entry in logs] == [
            "progress cannot be published",
            "progress cannot be published",
            "progress is published again",
        ]
        assert {entry["run"] for entry in logs} == {"run"}
        assert "403" in logs[0]["reason"]
        assert "503" in logs[1]["reason"]

    def test_back_off_grows_and_heeds_the_server(self) -> None:
        sink = ConfigMapSink(Slow())
        pauses = []
        for failures in (1, 2, 5, 50):
            sink._failures = failures
            pauses.append(sink._pause(PublishError("x")))
        assert 0.75 <= pauses[0] <= 1.25
        assert 1.5 <= pauses[1] <= 2.5
        assert 12 <= pauses[2] <= 20
        assert 45 <= pauses[3] <= 75
        sink._failures = 1
        assert sink._pause(PublishError("x", wait_s=30)) == 30

    def test_the_last_report_does_not_wait_for_back_off(self, server: StandInApiServer) -> None:
        server.script([Answer(503), Answer(503), Answer(429, headers={"Retry-After": "60"})])
        sink = ConfigMapSink(target(server))
        sink.publish("1")
        until(lambda: len(server.requests) == 1)
        sink.publish("last")
        sink.finish(10)
        assert [request.progress for request in server.requests[1:]] == ["last"] * 3

    def test_its_wait_is_bounded(self, server: StandInApiServer) -> None:
        server.script([Answer(0)] * 50)
        sink = ConfigMapSink(target(server))
        sink.publish("last")
        began = time.monotonic()
        with capture_logs() as logs:
            sink.finish(1.0)
        assert 0.9 < time.monotonic() - began < 2.0
        assert "the last report may not have arrived" in [entry["event"] for entry in logs]
        assert sink._thread is not None
        server.close()
        sink._thread.join(10)
        assert not sink._thread.is_alive()  # it does not go on trying

    def test_a_configmap_that_is_gone_is_not_waited_for(self, server: StandInApiServer) -> None:
        server.script([Answer(404)] * 50)
        sink = ConfigMapSink(target(server))
        sink.publish("last")
        began = time.monotonic()
        sink.finish(30)
        assert time.monotonic() - began < 10
        assert len(server.requests) in (1, 2)  # the second, if the first came before the end

    def test_without_a_report_there_is_nothing_to_wait_for(self) -> None:
        began = time.monotonic()
        ConfigMapSink(Slow()).finish(10)
        assert time.monotonic() - began < 1

    def test_the_thread_ends_with_it(self, server: StandInApiServer) -> None:
        sink = ConfigMapSink(target(server))
        sink.publish("1")
        sink.finish(10)
        assert sink._thread is not None
        sink._thread.join(10)
        assert not sink._thread.is_alive()

    def test_a_flaw_of_the_target_does_not_end_the_thread(self) -> None:
        class Broken:
            tries = 0

            def patch(self, text: str, timeout_s: float) -> None:
                del text, timeout_s
                self.tries += 1
                if self.tries < 3:
                    raise ZeroDivisionError("flaw")

        broken = Broken()
        sink = ConfigMapSink(broken)
        sink.publish("last")
        with capture_logs() as logs:
            sink.finish(10)
        assert broken.tries == 3
        assert logs[0]["reason"] == "ZeroDivisionError: flaw"
