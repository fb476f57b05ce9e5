"""The report and the figures: well formed, self-contained, escaped, the same every time."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from tests.support import example_report
from tests.support.compared_runs import MadeUp, flat, write_seeds

from drivetrain_trainer.analysis.comparison.document import ComparisonDocument
from drivetrain_trainer.analysis.comparison.markup import Markup, element, joined
from drivetrain_trainer.cli.compare import compare

EMPTY = {"meta"}
"""Elements that HTML never closes; those of SVG close themselves."""
NASTY = "<script>alert('x')<b> & $\\frac{1}{0}$ \"_"


class Walker(HTMLParser):
    """Refuses what is not closed, closed twice, or has one id as another."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.seen: dict[str, list[dict[str, str | None]]] = {}
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, attrs)
        self.seen.setdefault(tag, []).append(dict(attrs))
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @classmethod
    def over(cls, page: str) -> Walker:
        walker = cls()
        walker.feed(page)
        walker.close()
        assert walker.open == []
        assert len(set(walker.ids)) == len(walker.ids)
        return walker

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(*arguments: str | Path) -> Result:
    given = [*map(str, arguments), "--repetitions", "200"]
    result = CliRunner().invoke(compare, given)
    assert result.exit_code == 0, result.output
    return result


def two_sides(count: int = 3, **spec: Any) -> None:
    for side, best in (("a", 100.0), ("b", 140.0)):
        write_seeds(
            Path(side),
            lambda seed, best=best: MadeUp(best + seed, noise=2.0, spec=spec),  # type: ignore[misc]  # of a loop
            range(count),
            "hopper",
        )


def test_the_example_is_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    example_report.main(None, tmp_path / "r.html", range(2))
    page = (tmp_path / "r.html").read_text()
    walker = Walker.over(page)
    assert page.startswith("<!DOCTYPE html>")
    assert "script" not in walker.seen
    assert "link" not in walker.seen
    assert "img" not in walker.seen
    places = [
        value
        for attributes in (one for found in walker.seen.values() for one in found)
        for name, value in attributes.items()
        if name in {"href", "src", "xlink:href"}
    ]
    assert places
    assert all(place and place.startswith("#") for place in places)
    assert not re.search(r"url\((?!#)|@import|https?:(?!//www\.w3\.org/)", page)
    assert walker.seen["html"][0]["lang"] == "en"
    for text in (
        "two-critics seems better on half_cheetah and hopper: interquartile mean of final scores",
        "1 of 5 runs of two-critics takes no part",
        "AMD EPYC 9554, 16 threads on 8 cores; 64 GiB of memory (cgroup v2 limit); NVIDIA H200",
        "algo.critic_learning_rate",
        "failed: NonFiniteError: critic loss is NaN at environment step 22,000",
        "suites/base/sac/hopper/run_1_seed_1",
        "The same for all runs: python 3.11.",
    ):
        assert text in walker.text, text


def test_each_figure_has_a_name_and_words_for_those_who_do_not_see_it() -> None:
    two_sides()
    call("a", "b", "-o", "r.html")
    walker = Walker.over(Path("r.html").read_text())
    pictures = [one for one in walker.seen["svg"] if one.get("role") == "img"]
    assert len(pictures) == len(walker.seen["svg"]) == len(walker.seen["figcaption"]) == 5
    for picture in pictures:
        for name in (picture["aria-labelledby"] or "").split():
            assert name in walker.ids
    assert len(walker.seen["title"]) == 1 + len(pictures)
    assert all(one.get("scope") in {"row", "col"} for one in walker.seen["th"])
    for used in re.findall(r'(?:href="#|url\(#)([^")]+)', Path("r.html").read_text()):
        assert used in walker.ids


def test_ink_follows_the_page() -> None:
    two_sides(2)
    call("a", "b", "-o", "r.html")
    page = Path("r.html").read_text()
    assert "#000000" not in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_what_runs_are_called_is_no_markup() -> None:
    summary = {"status": "failed", "error": f"{NASTY}\x1b[31m"}
    two_sides()
    flat(1.0, summary=summary, spec={"task": {"name": "hopper"}}).write(Path("a/<b>x"), 9)
    call(f"{NASTY}=a", "b", "-o", "r.html", "--plot", "p.svg")
    walker = Walker.over(Path("r.html").read_text())
    assert "script" not in walker.seen
    assert "b" not in walker.seen
    assert NASTY in walker.text
    assert "a/<b>x" in walker.text
    assert "\x1b" not in Path("r.html").read_text()
    drawn = " ".join(ET.parse("p.svg").getroot().itertext())
    assert "<script>alert" in drawn


def test_words_that_no_file_can_hold_are_replaced() -> None:
    assert joined(["a\x00b\ud800<"]) == "a?b?&lt;"
    assert element("p", Markup("<b></b>"), "<", class_='"') == ('<p class="&quot;"><b></b>&lt;</p>')


def test_the_same_runs_give_the_same_files_and_another_seed_others() -> None:
    two_sides(7)
    for name in "12":
        call("a", "b", "-o", f"{name}.html", "--plot", f"{name}.svg")
    assert Path("1.html").read_bytes() == Path("2.html").read_bytes()
    assert Path("1.svg").read_bytes() == Path("2.svg").read_bytes()
    documents = [
        ComparisonDocument.from_json(call("a", "b", "--json", "--bootstrap-seed", seed).stdout)
        for seed in "05"
    ]
    assert documents[0].sides != documents[1].sides


@pytest.mark.parametrize(("name", "magic"), [("p.png", b"\x89PNG"), ("P.SVG", b"<?xml")])
def test_figures_alone(name: str, magic: bytes) -> None:
    two_sides(2)
    result = call("a", "b", "--plot", name)
    assert Path(name).read_bytes().startswith(magic)
    assert f"{name}: figures of 4 runs" in result.stderr


@pytest.mark.parametrize("count", [1, 3])
def test_one_side_and_many_have_their_figures(count: int) -> None:
    for number in range(count):
        write_seeds(
            Path(f"a-side-with-a-very-long-name-{number}"), lambda _: flat(1.0), [0], "hopper"
        )
    names = [f"a-side-with-a-very-long-name-{number}" for number in range(count)]
    call(*names, "-o", "r.html")
    walker = Walker.over(Path("r.html").read_text())
    assert ("Probability of improvement" in walker.text) == (count > 1)


def test_json_is_what_its_model_says() -> None:
    two_sides()
    result = call("a", "b", "--json", "--threshold", "1e9")
    document = ComparisonDocument.from_json(result.stdout)
    assert json.loads(result.stdout)["schema_version"] == 1
    (task,) = document.tasks
    assert [len(side.final_returns) for side in task.sides] == [3, 3]
    assert task.sides[0].median_steps_to_threshold is None
    assert task.sides[0].over_steps.low is not None
    assert {run.side for run in document.runs} == {"a", "b"}
    assert document.pairs[0].probability_of_improvement.value == 1.0
