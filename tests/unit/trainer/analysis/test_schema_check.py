"""Fail closed: each way in which a log may not be what it should, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from event_files import event_path, make_run, report, write_events

from drivetrain_api.metrics import METRICS, Family, MetricSchema, Owner, Unit
from drivetrain_trainer.analysis.extract import LegacyMode, extract
from drivetrain_trainer.analysis.runs import RunFolder
from drivetrain_trainer.analysis.schema_check import SchemaError, TagKind, kind_of

CANONICAL = {"Train/mean_reward": 1.0, "reward/run": 2.0}
LEGACY = {"reward/mean": 1.0, "reward/run": 2.0}
STAMP = '{"metric_schema_version": 1}'


@dataclass(frozen=True)
class Refused:
    summary: str | None
    values: dict[str, float]
    words: tuple[str, ...]
    """Besides the path of a file."""


DEFAULT = {
    "no summary": Refused(None, CANONICAL, ("no metric_schema_version", "'Train/mean_reward'")),
    "no stamp": Refused('{"status": "running"}', CANONICAL, ("no metric_schema_version",)),
    "neutral tags without a stamp": Refused(None, {"reward/run": 1.0}, ("'reward/run'", "restore")),
    "torn summary": Refused(STAMP[:-3], CANONICAL, ("not whole JSON", "restore")),
    "empty summary": Refused("", CANONICAL, ("not whole JSON",)),
    "a summary that is a list": Refused("[1]", CANONICAL, ("no JSON object",)),
    "a stamp that stands twice": Refused(
        '{"metric_schema_version": 2, "metric_schema_version": 1}', CANONICAL, ("stands twice",)
    ),
    "another version": Refused('{"metric_schema_version": 2}', CANONICAL, ("is 2", "reads 1")),
    "version 0": Refused('{"metric_schema_version": 0}', CANONICAL, ("is 0",)),
    "true": Refused('{"metric_schema_version": true}', CANONICAL, ("the integer 1; got true",)),
    "NaN": Refused('{"metric_schema_version": NaN}', CANONICAL, ("the integer 1; got NaN",)),
    "1.0": Refused('{"metric_schema_version": 1.0}', CANONICAL, ("the integer 1; got 1.0",)),
    "text": Refused('{"metric_schema_version": "1"}', CANONICAL, ('the integer 1; got "1"',)),
    "null": Refused('{"metric_schema_version": null}', CANONICAL, ("the integer 1; got null",)),
    "a legacy log": Refused(None, LEGACY, ("'reward/mean'", "--legacy-unversioned")),
    "legacy tags in a stamped run": Refused(
        STAMP, LEGACY, ("retired tag 'reward/mean'", "another run", "move it out")
    ),
    "retired tags in a stamped run": Refused(
        STAMP, {"perf/learner_train_pct": 1.0}, ("retired tag 'perf/learner_train_pct'",)
    ),
    "both kinds": Refused(STAMP, CANONICAL | LEGACY, ("mixed", "'reward/mean'")),
    "both kinds without a stamp": Refused(None, CANONICAL | LEGACY, ("mixed",)),
    "an unknown tag": Refused(
        STAMP, CANONICAL | {"Train/mean_rewards": 1.0}, ("'Train/mean_rewards'", "near: Train/mean")
    ),
    "a family that nobody declared": Refused(
        STAMP, CANONICAL | {"gait/duty": 1.0}, ("'gait/duty'", "declared family")
    ),
    "a family's bare name": Refused(STAMP, {"reward/": 1.0}, ("'reward/'",)),
}

WITH_FLAG = {
    "a stamp": Refused(STAMP, LEGACY, ("is 1", "leave --legacy-unversioned out")),
    "a version that is not supported": Refused('{"metric_schema_version": 2}', LEGACY, ("is 2",)),
    "a torn summary": Refused(STAMP[:-3], LEGACY, ("not whole JSON",)),
    "a canonical tag": Refused(None, CANONICAL, ("'Train/mean_reward'", "restore")),
    "both kinds": Refused(None, CANONICAL | LEGACY, ("mixed",)),
    "an unknown tag": Refused(None, LEGACY | {"my/tag": 1.0}, ("'my/tag'", "recognised")),
    "nothing but neutral tags": Refused(None, {"reward/run": 1.0}, ("no recognised legacy tag",)),
}


def check(case: Refused, folder: Path, legacy: LegacyMode | None) -> None:
    make_run(folder, [report(1, case.values)])
    if case.summary is not None:
        (folder / "run_summary.json").write_text(case.summary)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(SchemaError) as refusal:
        extract(RunFolder.open(folder), legacy=legacy)
    message = str(refusal.value)
    assert str(folder) in message
    for word in case.words:
        assert word in message
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("case", DEFAULT.values(), ids=DEFAULT)
def test_refused_by_default(case: Refused, tmp_path: Path) -> None:
    check(case, tmp_path, None)


@pytest.mark.parametrize("case", WITH_FLAG.values(), ids=WITH_FLAG)
def test_refused_as_legacy(case: Refused, tmp_path: Path) -> None:
    check(case, tmp_path, LegacyMode())


def test_plots_and_diagnosis_read_by_the_same_rules(tmp_path: Path) -> None:
    make_run(tmp_path, [report(1, CANONICAL)])
    with pytest.raises(SchemaError, match="no metric_schema_version"):
        RunFolder.open(tmp_path).metrics()


def test_mixed_files_of_one_directory_are_named(tmp_path: Path) -> None:
    write_events(event_path(tmp_path, 1), [report(1, CANONICAL)])
    write_events(event_path(tmp_path, 2), [report(2, LEGACY)])
    with pytest.raises(SchemaError) as refusal:
        extract(RunFolder.open(tmp_path), legacy=LegacyMode())
    assert str(event_path(tmp_path, 1)) in str(refusal.value)
    assert str(event_path(tmp_path, 2)) in str(refusal.value)


def test_tags_of_declared_families_are_canonical(tmp_path: Path) -> None:
    make_run(tmp_path, [report(1, {"gait/duty": 0.5})], summary={"metric_schema_version": 1})
    families = [{"prefix": "gait/", "unit": "fraction", "reduction": "mean"}]
    config = {"run": {"metric_families": families}, "later": "field"}
    (tmp_path / "run_config.json").write_text(json.dumps(config))
    assert RunFolder.open(tmp_path).metrics().tags == ("gait/duty",)


@pytest.mark.parametrize("prefix", ["Train/", "gait", 3])
def test_a_family_that_cannot_be_is_refused(tmp_path: Path, prefix: object) -> None:
    make_run(tmp_path, [report(1, CANONICAL)], summary={"metric_schema_version": 1})
    families = [{"prefix": prefix, "unit": "fraction", "reduction": "mean"}]
    (tmp_path / "run_config.json").write_text(json.dumps({"run": {"metric_families": families}}))
    with pytest.raises(SchemaError, match=r"run_config\.json: run\.metric_families"):
        RunFolder.open(tmp_path).metrics()


@pytest.mark.parametrize(
    ("tag", "kind"),
    [
        *((tag, TagKind.CANONICAL) for tag in METRICS),
        ("Episode_Termination/fallen", TagKind.CANONICAL),
        ("timeperf/train", TagKind.CANONICAL),
        ("eval-rollout/reward", TagKind.CANONICAL),
        ("gait/duty", TagKind.CANONICAL),
        ("reward/run", TagKind.NEUTRAL),
        ("reward/mean", TagKind.LEGACY),
        ("reward/mean_ep100", TagKind.LEGACY),
        ("perf/learner_other_pct", TagKind.LEGACY),
        ("Reward/run", TagKind.UNKNOWN),
        ("Train/Iteration", TagKind.UNKNOWN),
        ("", TagKind.UNKNOWN),
    ],
)
def test_kinds_of_tags(tag: str, kind: TagKind) -> None:
    schema = MetricSchema().declaring([Family("gait/", Unit.FRACTION, Owner.ENVIRONMENT)])
    assert kind_of(tag, schema) is kind
