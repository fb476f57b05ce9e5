"""The command: what it writes, what it says, and that it leaves nothing behind."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from event_files import STAMPED, event_path, make_run, record, report, write_events
from runtime_manifests import (
    OWN_BUDGET,
    altered_manifests,
    altered_summaries,
    completed_manifest,
    completed_summary,
)

from drivetrain_trainer.analysis import extract as extracting
from drivetrain_trainer.analysis.runs import RunFolder
from drivetrain_trainer.cli.extract import extract

BEGUN = {"schema_version": 1, "inference_ring_capacity": 1, "collector_metrics_interval": 1}
VALUES = {"Train/mean_reward": 1.5, "Perf/total_fps": 100.0, "reward/run": 2.0}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    reports = [report(step, VALUES) for step in (10, 20, 30)]
    return make_run(tmp_path / "run", reports, summary=STAMPED)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(extract, [str(argument) for argument in arguments])


def content(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_writes_a_table_into_the_run_directory_and_touches_nothing_else(run: Path) -> None:
    before = content(run)
    done = invoke(run)
    assert done.exit_code == 0, done.output
    assert done.output == f"{run}/metrics.csv: 3 rows, 3 tags\n"
    after = content(run)
    assert after.pop("metrics.csv")
    assert after == before
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["10", "20", "30"]
    assert list(rows[0]) == ["step", "wall_time", *VALUES]


def test_every_format_holds_the_same(run: Path, tmp_path: Path) -> None:
    for form in ("csv", "json", "parquet"):
        assert invoke(run, "--format", form, "-o", tmp_path / form).exit_code == 0
    with (tmp_path / "csv").open() as file:
        by_csv = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    by_json = json.loads((tmp_path / "json").read_text())
    assert by_csv == by_json == pq.read_table(tmp_path / "parquet").to_pylist()
    assert len(by_csv) == 3


def test_tags_are_chosen_by_pattern(run: Path) -> None:
    assert invoke(run, "--tag", "Train/*", "--tag", "reward/run").exit_code == 0
    head = (run / "metrics.csv").read_text().splitlines()[0]
    assert head == "step,wall_time,Train/mean_reward,reward/run"


def test_a_table_is_replaced_by_a_newer_one(run: Path) -> None:
    (run / "metrics.csv").write_text("old")
    assert invoke(run).exit_code == 0
    assert (run / "metrics.csv").read_text().startswith("step,")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tag", "Trian/*"], "no tag of {run} fits 'Trian/*'; it has Train/mean_reward"),
        (["-o", "{run}/run_summary.json"], "is one of the run's own files"),
        (["-o", "{event}"], "is one of the run's own files"),
        (["-o", "{run}/events.out.tfevents.2"], "is one of the run's own files"),
        (["-o", "{run}/absent/table.csv"], "absent/table.csv: No such file or directory"),
        (["--algo", "sac"], "--algo goes with --legacy-unversioned alone"),
        (["--legacy-unversioned"], "a stamped run is no legacy run"),
    ],
)
def test_refused_with_the_reason(run: Path, arguments: list[str], words: str) -> None:
    before = content(run)
    names = {"run": run, "event": event_path(run)}
    done = invoke(run, *(argument.format(**names) for argument in arguments))
    assert done.exit_code == 2
    assert words.format(**names) in done.output
    assert "Traceback" not in done.output
    assert content(run) == before


@pytest.mark.parametrize(
    ("what", "manifest"),
    [pytest.param(what, manifest, id=what) for what, manifest in altered_manifests()],
)
def test_a_run_whose_runtime_manifest_was_altered_is_refused(
    tmp_path: Path, what: str, manifest: dict[str, Any]
) -> None:
    summary = STAMPED | {"status": "completed", "runtime_manifest": manifest}
    folder = make_run(tmp_path / "run", [report(10, VALUES)], summary=summary)
    refused = invoke(folder)
    assert refused.exit_code != 0, what
    assert "run_summary.json" in refused.output
    assert not (folder / "metrics.csv").exists()


@pytest.mark.parametrize(
    ("what", "summary"),
    [pytest.param(what, summary, id=what) for what, summary in altered_summaries()],
)
def test_a_run_whose_summary_was_altered_is_refused(
    tmp_path: Path, what: str, summary: dict[str, Any]
) -> None:
    folder = make_run(tmp_path / "run", [report(10, VALUES)], summary=summary)
    refused = invoke(folder)
    assert refused.exit_code != 0, what
    assert "run_summary.json" in refused.output
    assert not (folder / "metrics.csv").exists()


@pytest.mark.parametrize("algo", ["sac", "flash_sac", "appo"])
def test_a_completed_run_that_lost_its_runtime_manifest_is_refused(
    tmp_path: Path, algo: str
) -> None:
    summary = completed_summary(algo=algo, runtime_manifest=None)
    refused = invoke(make_run(tmp_path / "run", [report(10, VALUES)], summary=summary))
    assert refused.exit_code != 0
    assert f"a completed run of {algo} without runtime_manifest" in refused.output


@pytest.mark.parametrize(
    "summary",
    [
        completed_summary(),
        completed_summary(runtime_manifest=completed_manifest(**OWN_BUDGET)),
        completed_summary(algo="ppo", runtime_manifest=None),
        completed_summary(status="running", runtime_manifest=None),
        completed_summary(status="failed", runtime_manifest=BEGUN),
        completed_summary(added_by_a_later_release=1),
    ],
    ids=["completed", "on a device", "ppo", "begins", "failed early", "of a later release"],
)
def test_a_sound_summary_is_no_hindrance(tmp_path: Path, summary: dict[str, Any]) -> None:
    done = invoke(make_run(tmp_path / "run", [report(10, VALUES)], summary=summary))
    assert done.exit_code == 0, done.output


def test_a_run_without_metrics_is_told(tmp_path: Path) -> None:
    make_run(tmp_path, [], summary=STAMPED)
    done = invoke(tmp_path)
    assert (done.exit_code, "holds no metrics yet" in done.output) == (2, True)


def test_a_legacy_run_is_refused_by_default_and_accepted_with_the_flag(tmp_path: Path) -> None:
    values = {"perf/iter_ms": 250.0, "timing/learner_incremental_h2d_ms": 1.0, "reward/run": 2.0}
    make_run(tmp_path, [report(1, {**values, "perf/collector_cycle_ms": 3.0})])
    refused = invoke(tmp_path)
    assert refused.exit_code == 2
    assert "--legacy-unversioned" in refused.output
    assert "--algo" in invoke(tmp_path, "--legacy-unversioned").output
    done = invoke(tmp_path, "--legacy-unversioned", "--algo", "appo")
    assert done.exit_code == 0
    assert "perf/collector_cycle_ms: retired without a successor" in done.stderr
    assert (tmp_path / "metrics.csv").read_text().splitlines() == [
        "step,wall_time,Perf/iteration_time,Perf/learner_replay_stage_ms,reward/run",
        "1,1700000001.0,0.25,1.0,2.0",
    ]


def test_a_killed_runs_torn_end_is_told_and_the_rest_written(run: Path) -> None:
    path = event_path(run)
    path.write_bytes(path.read_bytes()[:-5])
    done = invoke(run)
    assert done.exit_code == 0
    assert "the last record is unfinished" in done.stderr
    assert "2 rows" in done.stdout


def test_values_that_are_no_scalars_are_told(run: Path) -> None:
    event = report(40, VALUES)
    event.summary.value.add(tag="picture").image.width = 3
    write_events(event_path(run), [event])
    done = invoke(run)
    assert "1 values that are no scalars" in done.stderr


def test_a_full_disk_leaves_no_part_of_a_table(run: Path) -> None:
    before = content(run)
    write_events(event_path(run), [report(step, VALUES) for step in range(2000)])
    before |= {event_path(run).name: content(run)[event_path(run).name]}

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    drivetrain = Path(sys.executable).with_name("drivetrain")
    done = subprocess.run(
        [drivetrain, "extract", run],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )
    assert done.returncode == 2
    assert f"{run}/metrics.csv: {os.strerror(errno.EFBIG)}" in done.stderr
    assert content(run) == before


def test_a_run_that_is_being_written_gives_a_whole_prefix(run: Path) -> None:
    stop = threading.Event()
    line = [record(report(step, VALUES).SerializeToString()) for step in range(40, 20_000)]

    def train() -> None:
        with event_path(run).open("ab") as file:
            for data in line:
                file.write(data)
                file.flush()
                if stop.is_set():
                    return

    writer = threading.Thread(target=train)
    writer.start()
    try:
        counts = []
        for _ in range(3):
            done = extracting.extract(RunFolder.open(run))
            rows = done.output.read_text().splitlines()[1:]
            steps = [int(row.partition(",")[0]) for row in rows]
            assert steps == [10, 20, 30, *range(40, 40 + len(steps) - 3)]
            counts.append(done.rows)
    finally:
        stop.set()
        writer.join()
    assert counts == sorted(counts)


def test_help_has_examples_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner;"
        "from drivetrain_trainer.cli.extract import extract;"
        "out = CliRunner().invoke(extract, ['--help']).output;"
        "assert '--legacy-unversioned --algo appo' in out, out;"
        "print(sorted({'torch', 'numpy', 'pyarrow', 'tensorboard'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
