"""The backend with the real client: offline, and against a stand-in service."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from structlog.testing import capture_logs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb_file import read_offline_run
from wandb_server import WandbServer
from wandb_trial import (
    MakeContext,
    assert_no_key,
    log,
    offline_run,
    reports,
    tracked,
)

from drivetrain_api.training import WandbMode
from drivetrain_trainer.telemetry.backends.tensorboard import TensorBoardBackend
from drivetrain_trainer.telemetry.backends.wandb import WandbBackend, make, quietest
from drivetrain_trainer.telemetry.backends.wandb_session import send_video
from drivetrain_trainer.telemetry.record import Record, Table

LOADS = Table(("layer", "expert", "tokens"), ((0, 0, 12.5), (0, 1, 37.5)))
HISTORY_OF_CLIENT = {"_step", "_runtime", "_timestamp", "env_steps"}


def test_every_key_and_the_whole_configuration_reach_the_run(make_context: MakeContext) -> None:
    context = make_context(
        wandb_mode="offline",
        wandb_project="arms",
        wandb_entity="lab",
        wandb_group="seeds",
        wandb_name="first",
        wandb_tags=["sac", "cpu"],
        wandb_notes="a note",
    )
    context = replace(context, run_config={"algo": {"gamma": 0.99}, "seed": 3, "none": None})
    log(WandbBackend(context), reports(10))
    run = offline_run(context.directory)
    assert (run.project, run.entity, run.group) == ("arms", "lab", "seeds")
    assert (run.display_name, run.tags, run.notes) == ("first", ("sac", "cpu"), "a note")
    config = {key: value for key, value in run.config.items() if key != "_wandb"}
    assert config == {"algo": {"gamma": 0.99}, "seed": 3, "none": None}
    assert run.exit_code == 0


def test_every_value_is_the_one_that_tensorboard_has_and_nothing_is_printed(
    make_context: MakeContext, report: dict[str, float], capfd: pytest.CaptureFixture[str]
) -> None:
    context = make_context(wandb_mode="offline")
    values = report | {"Loss/critic": math.nan, "Loss/value": math.inf, "Train/iteration": 7.0}
    record = Record(531_200, 8300, 1_700_000_000.0, values, tables={"moe_balance/loads": LOADS})
    events = TensorBoardBackend(context.directory / "events")
    backend = WandbBackend(context)
    for each in (events, backend):
        each.open()
        each.write(record)
    assert os.getsid(0) not in [os.getsid(process.pid) for process in tracked(backend)], "Ctrl-C"
    tracked(backend)[0].send_signal(signal.SIGINT)
    backend.write(replace(record, env_steps=531_201, tables={}))
    events.close()
    backend.close()

    run = offline_run(context.directory)
    assert run.display_name == context.facts.run_name
    assert run.step_metrics == {"*": "env_steps"}
    first, second = run.history
    assert (first["env_steps"], second["env_steps"]) == (531_200, 531_201)
    assert first["_timestamp"] == 1_700_000_000.0
    persisted = EventAccumulator(str(context.directory / "events")).Reload()
    scalars = {tag: persisted.Scalars(tag)[0].value for tag in persisted.Tags()["scalars"]}
    assert set(second) - HISTORY_OF_CLIENT == set(scalars)
    for tag, value in scalars.items():
        np.testing.assert_equal(np.float32(first[tag]), np.float32(value))
        np.testing.assert_equal(first[tag], values[tag])
    table = context.directory.glob("wandb/*/files/media/table/**/*.json")
    (stored,) = [json.loads(path.read_text()) for path in table]
    assert stored == {"columns": list(LOADS.columns), "data": [list(row) for row in LOADS.rows]}
    assert first["moe_balance/loads/_type"] == "table-file"
    assert capfd.readouterr() == ("", "")


def test_a_disabled_run_starts_nothing_and_writes_nothing(make_context: MakeContext) -> None:
    context = make_context(wandb_mode="disabled")
    backend = make(context)
    assert isinstance(backend, WandbBackend)
    log(backend, reports(10))
    assert list(context.directory.iterdir()) == []
    assert backend.details == {}


@pytest.mark.parametrize(
    ("wanted", "variable", "mode"),
    [
        ("online", None, "online"),
        ("online", "online", "online"),
        ("online", "offline", "offline"),
        ("online", "Disabled", "disabled"),
        ("online", "nonsense", "online"),
        ("offline", "online", "offline"),
        ("offline", "disabled", "disabled"),
        ("disabled", "online", "disabled"),
        ("disabled", "offline", "disabled"),
    ],
)
def test_the_environment_can_only_make_it_quieter(
    wanted: str, variable: str | None, mode: str
) -> None:
    environment = {} if variable is None else {"WANDB_MODE": variable}
    found, because = quietest(WandbMode(wanted), environment)
    assert found is WandbMode(mode)
    assert (because is None) == (mode == wanted)
    assert because is None or because == f"WANDB_MODE={mode} in the environment"


def test_a_run_that_the_environment_disables_says_so(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    backend = WandbBackend(make_context())
    log(backend, reports(10))
    assert backend.details == {"disabled_because": "WANDB_MODE=disabled in the environment"}


def test_the_same_run_goes_on_after_each_restart_and_nothing_repeated_is_dropped(
    make_context: MakeContext, server: WandbServer
) -> None:
    """Steps after the checkpoint are repeated: the third attempt starts before the second's end."""
    context = make_context(wandb_project="arms", wandb_tags=["a"], wandb_name="first")
    pages, written = set(), []
    for number, steps in enumerate([(10, 20, 30), (20, 30, 40), (30, 40, 50)], start=1):
        backend = WandbBackend(replace(context, attempt=number, run_config={"attempt": number}))
        records = reports(*steps)
        log(backend, records)
        written += records
        pages.add(backend.details["run_url"])
    (run,) = server.runs.values()
    assert pages == {f"{server.url}/lab/arms/runs/{run.name}"}
    stored = json.loads((context.directory / "wandb_run.json").read_text())
    assert stored["url"] in pages
    assert (run.display_name, run.tags) == ("first", ["a"])
    assert run.config["attempt"]["value"] == 3
    assert [step["_step"] for step in run.history] == list(range(9))
    assert [step["env_steps"] for step in run.history] == [r.env_steps for r in written]
    for step, record in zip(run.history, written, strict=True):
        assert {tag: step[tag] for tag in record.values} == record.values
    assert run.exit_codes == [0, 0, 0]


def test_tables_and_videos_are_sent_and_no_report_asks_the_service_anything(
    make_context: MakeContext, server: WandbServer, tmp_path: Path
) -> None:
    video = tmp_path / "play_video.mp4"
    video.write_bytes(b"\0\0\0\x18ftypmp42 a film")
    context = make_context()
    (tabled,) = reports(10)
    backend = WandbBackend(context)
    backend.open()
    started = time.monotonic()
    server.behaviour.delay_s = 2.0
    backend.write(replace(tabled, tables={"moe_balance/expert_loads": LOADS}))
    assert time.monotonic() - started < 2.0
    server.behaviour.delay_s = 0.0
    backend.upload(video, "play_video")
    backend.close()
    (run,) = server.runs.values()
    tables = [json.loads(data) for name, data in run.files.items() if "table" in name]
    assert tables == [{"columns": list(LOADS.columns), "data": [list(row) for row in LOADS.rows]}]
    assert run.history[0]["moe_balance/expert_loads"]["_type"] == "table-file"
    assert run.history[1]["play_video"]["_type"] == "video-file"
    assert run.history[1]["env_steps"] == 10

    page = send_video(context.directory, video, name="play_video", env_steps=40)
    assert page == backend.details["run_url"]
    assert run.history[2]["env_steps"] == 40
    films = [data for name, data in run.files.items() if name.endswith(".mp4")]
    assert films == [video.read_bytes()] * 2
    assert run.exit_codes[0] == 0


def test_the_video_of_a_run_that_was_never_online_is_recorded_beside_it(
    make_context: MakeContext, tmp_path: Path
) -> None:
    video = tmp_path / "play_video.mp4"
    video.write_bytes(b"\0\0\0\x18ftypmp42 a film")
    context = make_context(wandb_mode="offline")
    assert send_video(context.directory, video, name="play_video", env_steps=1) is None
    log(WandbBackend(context), reports(10))
    told = send_video(context.directory, video, name="play_video", env_steps=40)
    assert told is not None
    assert told.startswith(f"'wandb sync {context.directory}/wandb/offline-run-")
    runs = [read_offline_run(path) for path in context.directory.glob("wandb/*/*.wandb")]
    assert len({run.run_id for run in runs}) == 1
    (film,) = [step for run in runs for step in run.history if "play_video/path" in step]
    assert film["env_steps"] == 40


def test_offline_attempts_become_one_run_when_they_are_sent(
    make_context: MakeContext, server: WandbServer
) -> None:
    context = make_context(wandb_mode="offline")
    for steps in ((10, 20), (20, 30)):
        log(WandbBackend(context), reports(*steps))
    files = sorted(map(str, context.directory.glob("wandb/offline-run-*")))
    assert len(files) == 2
    command = [sys.executable, "-m", "wandb", "sync", *files]
    subprocess.run(command, cwd=context.directory, capture_output=True, check=True, timeout=60)
    (run,) = server.runs.values()
    assert sorted(step["env_steps"] for step in run.history) == [10, 20, 20, 30]
    assert [step["_step"] for step in run.history] == [0, 1, 2, 3]


def test_the_key_is_in_no_file_no_argument_and_no_output(
    make_context: MakeContext, server: WandbServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Everything goes below the run directory, and nothing of the code is taken along."""
    context = make_context()
    with capture_logs() as logs:
        backend = WandbBackend(context)
        backend.open()
        arguments = [process.cmdline() for process in tracked(backend)]
        backend.write(reports(10)[0])
        backend.close()
    assert len(arguments) >= 2
    assert len(server.keys) == 1, "the service was asked without a key"
    assert_no_key(context.directory, str(arguments), str(logs), str(backend.details))
    assert capfd.readouterr() == ("", "")
    top = {path.name for path in context.directory.iterdir()}
    assert top == {"home", "wandb", "wandb_run.json"}
    assert list((context.directory / "home").iterdir()) == []
    (run,) = server.runs.values()
    assert not [name for name in run.files if name.startswith("code") or name.endswith(".patch")]
    metadata = json.loads(run.files["wandb-metadata.json"])
    assert "git" not in metadata
    assert "output.log" not in run.lines


@pytest.mark.parametrize(
    ("summary", "exit_code"),
    [(None, 0), ('{"status": "completed"}', 0), ('{"status": "failed"}', 1), ("torn", 0)],
)
def test_a_run_that_its_summary_calls_failed_is_failed(
    make_context: MakeContext, summary: str | None, exit_code: int
) -> None:
    context = make_context()
    if summary is not None:
        (context.directory / "run_summary.json").write_text(summary)
    ended: list[int] = []
    backend = WandbBackend(context)
    backend._session = SimpleNamespace(finish=lambda **end: ended.append(end["exit_code"]))  # type: ignore[assignment]  # a session that only notes how it ended
    backend.close()
    backend.close()
    assert ended == [exit_code]
