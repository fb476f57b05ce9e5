"""Rank 0's figures get through; nothing else does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from drivetrain_api.digest import PROGRESS_LIMIT, Digest, MpsReport, decode
from drivetrain_api.errors import SpecError
from drivetrain_api.status import Progress
from drivetrain_api.trainingrun import MpsMode
from drivetrain_trainer.launcher.configmap import ConfigMapSink
from drivetrain_trainer.launcher.progress import FileSink, ProgressPublisher, parse_sink


class Recorder:
    def __init__(self) -> None:
        self.seen: list[Digest] = []
        self.waited: float | None = None

    def publish(self, text: str) -> None:
        found = decode(text, PROGRESS_LIMIT)
        assert found is not None
        self.seen.append(found)

    def finish(self, seconds: float) -> None:
        self.waited = seconds


def report(path: Path, env_steps: int, **more: Any) -> None:
    digest = Digest(attempt=9, progress=Progress(env_steps=env_steps), **more)
    path.with_suffix(".new").write_text(digest.model_dump_json(by_alias=True, exclude_none=True))
    path.with_suffix(".new").replace(path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "progress.json"


def test_what_is_new_is_published_once_under_our_own_number(source: Path) -> None:
    sink = Recorder()
    publisher = ProgressPublisher(source, sink, attempt=2)
    publisher.poll()
    assert publisher.latest is None
    for env_steps in (10, 20):
        report(source, env_steps, message="I am done", exit_code=0)
        for _ in range(3):
            publisher.poll()
    assert sink.seen == [
        Digest(attempt=2, progress=Progress(env_steps=steps)) for steps in (10, 20)
    ]
    assert publisher.latest == Progress(env_steps=20)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[" * 4000,
        b'{"attempt": 1}',
        b'{"attempt": 1, "progress": {"envSteps": -1}}',
        b'{"attempt": 1, "progress": {"envSteps": 1.5}}',
        b'{"attempt": 1, "progress": {"meanReward": "NaN"}}',
        b'{"attempt": 1, "progress": {"surprise": 1}}',
        b'{"attempt": 1, "conditions": [], "progress": {}}',
        json.dumps({"attempt": 1, "progress": {}, "message": "x" * 5000}).encode(),
        b" " * 50_000_000,
    ],
)
def test_what_is_not_a_report_is_ignored(source: Path, content: bytes) -> None:
    sink = Recorder()
    publisher = ProgressPublisher(source, sink, attempt=1)
    report(source, 10)
    publisher.poll()
    source.write_bytes(content)
    publisher.poll()
    assert len(sink.seen) == 1
    assert publisher.latest == Progress(env_steps=10)


def test_a_pipe_a_folder_and_a_link_do_not_stop_the_loop(source: Path, tmp_path: Path) -> None:
    publisher = ProgressPublisher(source, Recorder(), attempt=1)
    os.mkfifo(source)
    publisher.poll()
    source.unlink()
    source.mkdir()
    publisher.poll()
    source.rmdir()
    report(tmp_path / "elsewhere.json", 10)
    source.symlink_to(tmp_path / "elsewhere.json")
    publisher.poll()
    assert publisher.latest is None


def test_a_sink_that_fails_costs_one_warning(source: Path, tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "absent" / "sink")
    publisher = ProgressPublisher(source, sink, attempt=1)
    with capture_logs() as logs:
        for env_steps in range(5):
            report(source, env_steps)
            publisher.poll()
    assert [entry["event"] for entry in logs] == ["progress cannot be published"]
    (tmp_path / "absent").mkdir()
    report(source, 99)
    publisher.poll()
    found = decode(sink.path.read_text(), PROGRESS_LIMIT)
    assert found is not None
    assert found.progress == Progress(env_steps=99)


def test_without_a_sink_the_latest_figures_are_still_known(source: Path) -> None:
    publisher = ProgressPublisher(source, None, attempt=1)
    report(source, 10)
    publisher.poll()
    assert publisher.latest == Progress(env_steps=10)


def test_news_of_mps_is_published_at_once_and_stays(source: Path) -> None:
    sink = Recorder()
    publisher = ProgressPublisher(source, sink, attempt=2)
    waiting = MpsReport(mode=MpsMode.IN_CONTAINER, ready=False, daemons=1, message="soon")
    ready = waiting.model_copy(update={"ready": True})
    for news in (waiting, waiting, ready):
        publisher.report_mps(news)
    report(source, 10)
    publisher.poll()
    assert [digest.mps for digest in sink.seen] == [waiting, ready, ready]
    assert sink.seen[-1].progress == Progress(env_steps=10)


def test_the_last_report_is_waited_for(source: Path) -> None:
    sink = Recorder()
    last = Digest(attempt=1, exit_code=0)
    ProgressPublisher(source, sink, attempt=1).finish(last, 3.5)
    assert (sink.seen, sink.waited) == ([last], 3.5)
    ProgressPublisher(source, None, attempt=1).finish(last, 3.5)


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_sinks_are_parsed_by_name() -> None:
    assert parse_sink(None, {}) is None
    assert parse_sink("file:/a:b", {}) == FileSink(Path("/a:b"))
    assert isinstance(parse_sink("configmap:run-progress", POD), ConfigMapSink)


@pytest.mark.parametrize(
    ("text", "environ", "message"),
    [
        ("file:", POD, "unknown; available: configmap:<name>, file:<path>; got 'file:'"),
        ("http://x", POD, "unknown"),
        ("/path", POD, "unknown"),
        ("configmap:", POD, "needs the name of a ConfigMap; got ''"),
        ("configmap:../secrets/x", POD, "needs the name of a ConfigMap"),
        ("configmap:Run", POD, "needs the name of a ConfigMap"),
        ("configmap:" + "a" * 254, POD, "needs the name of a ConfigMap"),
        ("configmap:run", {}, "configmap:run needs a pod, where KUBERNETES_SERVICE_HOST"),
        ("configmap:run", {**POD, "KUBERNETES_SERVICE_PORT": "0"}, "needs a pod"),
        ("configmap:run", {**POD, "KUBERNETES_SERVICE_PORT": "x"}, "Outside of one use file:"),
    ],
)
def test_others_are_refused_by_name(text: str, environ: dict[str, str], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_sink(text, environ)
    assert str(caught.value).startswith("DRIVETRAIN_PROGRESS_SINK: ")
    assert message in str(caught.value)
