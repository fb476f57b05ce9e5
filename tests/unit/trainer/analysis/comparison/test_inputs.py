"""Which runs an argument means, and of which side they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.compared_runs import flat, write_seeds, write_suite

from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_trainer.analysis.comparison.inputs import ComparisonError, Found, find
from drivetrain_trainer.analysis.grouping import GroupingError
from drivetrain_trainer.cli.compare import compare

RATES = {"v0": {"algo.criticLearningRate": 0.1}, "v1": {"algo.criticLearningRate": 0.2}}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def runs(folder: str, seeds: int = 2, task: str = "hopper", **spec: object) -> str:
    write_seeds(Path(folder), lambda _: flat(1.0, reports=5, spec=spec), range(seeds), task)
    return folder


def suite(folder: str, variants: dict[str, dict[str, object]], **more: object) -> str:
    made = {name: lambda _: flat(1.0, reports=5) for name in variants}
    Path(folder).mkdir(parents=True)
    write_suite(Path(folder), made, [0, 1], task="hopper", overrides=variants, **more)  # type: ignore[arg-type]  # of tests
    return folder


def sides(found: list[Found]) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for one in found:
        told.setdefault(one.side, []).append(str(one.path))
    return told


def test_folders_runs_and_patterns_are_sides_of_their_own() -> None:
    runs("logs/a")
    runs("logs/b", 3)
    runs("other/2026-1", 1)
    runs("other/2026-2", 1)
    found = sides(find(["logs/a", "seeds=logs/b", "other/2026-*"]))
    assert {side: len(paths) for side, paths in found.items()} == {
        "a": 2,
        "seeds": 3,
        "2026-*": 2,
    }
    assert found["a"] == ["logs/a/run_0_seed_0", "logs/a/run_1_seed_1"]
    alone = find(["logs/a/run_0_seed_0", "logs/a/run_1_seed_1"])
    assert [one.side for one in alone] == ["run_0_seed_0", "run_1_seed_1"]


def test_labels_are_the_shortest_ends_that_differ() -> None:
    runs("old/sac")
    runs("new/sac")
    assert list(sides(find(["old/sac", "new/sac"]))) == ["old/sac", "new/sac"]


def test_a_path_with_an_equals_sign_is_a_path() -> None:
    runs("lr=1")
    assert list(sides(find(["lr=1"]))) == ["lr=1"]
    assert list(sides(find(["x=lr=1"]))) == ["x"]


def test_variants_of_a_suite_are_sides() -> None:
    suite("s", RATES)
    both = ["criticLearningRate=0.1", "criticLearningRate=0.2"]
    assert list(sides(find(["s"]))) == both
    runs("base")
    assert list(sides(find(["s", "base"]))) == [*(f"s · {one}" for one in both), "base"]
    assert list(sides(find(["s/v0", "s/v1"]))) == ["v0", "v1"]
    members = [one.member for one in find(["s/v1"])]
    assert [one and one.run_idx for one in members] == [0, 1]


def test_tasks_of_a_suite_are_no_sides() -> None:
    suite("s", {"hop": {"task.name": "hopper"}, "walk": {"task.name": "walker2d"}})
    assert {side: len(paths) for side, paths in sides(find(["s"])).items()} == {"s": 4}


def test_members_without_a_directory_are_found_by_any_way_into_the_suite() -> None:
    failed = {("v0", 1): (MemberState.FAILED, "out of memory")}
    suite("s", RATES, states=failed)
    for argument in ("s", "s/v0", "s/v0/sac/hopper", "s/v*"):
        lost = [one for one in find([argument]) if not one.path.exists()]
        assert [str(one.path) for one in lost] == ["s/v0/sac/hopper/run_1_seed_1"], argument
        assert lost[0].member is not None
        assert lost[0].member.reason == "out of memory"
    assert all(one.path.exists() for one in find(["s/v1"]))
    assert all(one.path.exists() for one in find(["s/v0/sac/hopper/run_0_seed_0"]))


def replaced(folder: str) -> None:
    """What a cluster's `--fresh` and a local one leave of seeds 0 and 1 of a suite."""
    folders = Path(folder, "sac/hopper")
    (folders / "run_0_seed_0").rename(folders / "run_0_seed_0-2")
    runs(str(folders), 1)
    shutil.copytree(folders / "run_1_seed_1", folders / ".run_1_seed_1.replaced-1")
    runs(f"{folder}/other", 1)
    (folders / "run_0_seed_0").rename(folders / ".run_0_seed_0.replaced-1")
    runs(str(folders), 1)
    record = Path(folder, "suite.json")
    record.write_text(record.read_text().replace("run_0_seed_0", "run_0_seed_0-2"))


@pytest.mark.parametrize("argument", ["s", "s/sac/hopper", "./s/sac", "s/sac/h*"])
def test_of_a_suite_what_its_record_names_counts_and_what_it_replaced_is_told(
    argument: str,
) -> None:
    suite("s", {"v0": {}})
    replaced("s")
    found = find([argument])
    assert len({one.side for one in found}) == 1
    told = {one.path.name: one.not_counted for one in found if "other" not in one.path.parts}
    assert told == {
        "run_0_seed_0-2": None,
        "run_1_seed_1": None,
        "run_0_seed_0": "replaced by run_0_seed_0-2, as suite.json says",
        ".run_0_seed_0.replaced-1": "replaced by run_0_seed_0-2, as suite.json says",
        ".run_1_seed_1.replaced-1": "replaced by run_1_seed_1, as suite.json says",
    }
    assert [one.member.seed for one in found if one.path.name == "run_0_seed_0" and one.member] == (
        [0]
    )
    named = [one.not_counted or "" for one in find(["s"]) if "other" in one.path.parts]
    assert [words.endswith("s/suite.json does not name it") for words in named] == [True]


def test_a_replaced_run_that_is_named_itself_counts() -> None:
    suite("s", {"v0": {}})
    replaced("s")
    old, new = "s/sac/hopper/run_0_seed_0", "s/sac/hopper/run_0_seed_0-2"
    found = find([old, new, "s/sac/hopper/.run_1_seed_1.replaced-1"])
    assert [one.not_counted for one in found] == [None] * 3


def test_replaced_runs_take_no_part_are_listed_and_speak_against_no_side() -> None:
    suite("s", {"v0": {}})
    replaced("s")
    for option in ((), ("--unfinished",)):
        words = ["s/sac/hopper", "--json", "--repetitions", "100", *option]
        done = CliRunner().invoke(compare, words)
        assert done.exit_code == 0, done.output
        content = json.loads(done.stdout)
        out = {Path(run["path"]).name: run["left_out"] for run in content["runs"]}
        taking = sorted(name for name, why in out.items() if why is None)
        assert taking == ["run_0_seed_0-2", "run_1_seed_1"]
        replacement = "not counted: replaced by run_0_seed_0-2, as suite.json says"
        assert out["run_0_seed_0"] == replacement
        caveats = " ".join(content["caveats"])
        for words_of_doubt in ("looks better than it is", "no part", "several runs of seed"):
            assert words_of_doubt not in caveats
    grouped = find(["s"], ["algo.batch_size"])
    assert {one.side for one in grouped if one.not_counted} == {"?"}


def test_several_algorithms_of_a_folder_are_sides() -> None:
    runs("logs/sac/hopper")
    runs("logs/ppo/hopper", 1)
    summary = Path("logs/ppo/hopper/run_0_seed_0/run_summary.json")
    summary.write_text(summary.read_text().replace('"algo": "sac"', '"algo": "ppo"'))
    assert sorted(sides(find(["logs"]))) == ["ppo", "sac"]
    assert sorted(sides(find(["mine=logs"]))) == ["mine · ppo", "mine · sac"]


def test_a_damaged_run_stays_with_the_others() -> None:
    runs("logs")
    (Path("logs/run_1_seed_1") / "run_summary.json").write_text("{")
    assert sides(find(["logs"])) == {"logs": ["logs/run_0_seed_0", "logs/run_1_seed_1"]}


def test_settings_group_runs_of_all_arguments_once() -> None:
    runs("a", algo={"batch_size": 64})
    runs("b", algo={"batch_size": 128})
    found = sides(find(["a", "b", "a/run_0_seed_0"], ["algo.batch_size"]))
    assert {side: len(paths) for side, paths in found.items()} == {
        "batch_size=64": 2,
        "batch_size=128": 2,
    }
    with pytest.raises(GroupingError, match="nothing"):
        find(["a"], ["nothing"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing"], "missing does not exist"),
        (["mis*"], r"nothing fits 'mis\*'"),
        (["empty"], "no run in empty"),
        (["a", "a/run_0_seed_0"], "a/run_0_seed_0 is on two sides, a and run_0_seed_0"),
        (["x=a", "x=b"], "two arguments are called 'x'"),
        ([f"many/{index}" for index in range(13)], "13 sides are more than the 12"),
        (["torn"], "torn/suite.json"),
    ],
)
def test_refusals(arguments: list[str], words: str) -> None:
    runs("a")
    runs("b")
    Path("empty").mkdir()
    for index in range(13):
        runs(f"many/{index}", 1)
    runs("torn")
    Path("torn/suite.json").write_text('{"schema_version": 1')
    with pytest.raises(ComparisonError, match=words):
        find(arguments)
