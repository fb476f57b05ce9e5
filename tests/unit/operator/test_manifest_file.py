from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from drivetrain_operator.manifest_file import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    ManifestError,
    parse,
    read_manifest,
)
from drivetrain_operator.yaml_core import dump

if TYPE_CHECKING:
    from pathlib import Path


def content(text: str) -> dict[str, Any]:
    return parse(text.encode(), "run.yaml").content


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.0", 1.0),
        ("1e-3", 0.001),
        ("1E6", 1e6),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("yes", "yes"),
        ("on", "on"),
        ("010", "010"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2024-01-02", "2024-01-02"),
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
        ("9" * 41, "9" * 41),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
        ("!!int 1", 1),
        ("[1, 1.0, '1', true]", [1, 1.0, "1", True]),
    ],
)
def test_values_keep_exact_types(text: str, value: object) -> None:
    found = content(f"a: {text}")["a"]
    assert found == value
    assert repr(found) == repr(value)


def test_nan_is_read_and_left_to_the_models() -> None:
    assert math.isnan(content("a: .nan")["a"])


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", 5, "duplicate key 'c' (first on line 3)"),
        ("a: 1\n---\nb: 2\n", 2, "more than one document"),
        ("", 1, "mapping, not an empty document"),
        ("- a\n", 1, "must be a mapping, not list"),
        ("a: 1\n1: 2\n", 2, "key '1' is not text"),
        ("a: 1\n[x]: 2\n", 2, "key must be plain text"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, "merge keys"),
        ("a: *nowhere\n", 1, "alias *nowhere has no anchor"),
        ("a: &x\n  b: *x\n", 2, "alias *x refers to itself"),
        ("a: 1\nb: !!python/object/apply:os.system ['true']\n", 2, "python/object"),
        ("a: !!int x\n", 1, "not allowed for 'x'"),
        ("a: !!map [1]\n", 1, "tag 'tag:yaml.org,2002:map' is not allowed"),
        ("a: !thing {}\n", 1, "tag '!thing' is not allowed"),
        ("a: [1, 2\nb: 3\n", 2, "expected ',' or ']'"),
        ("a: b: c\n", 1, "mapping values are not allowed"),
        ("a: 1\nb: \x07\n", 2, "character not allowed"),
        ("a: 1\n\tb: 2\n", 2, "cannot start any token"),
    ],
)
def test_refusals_name_file_and_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(text.encode(), "run.yaml")
    assert str(caught.value).startswith(f"run.yaml:{line}: ")
    assert words in str(caught.value)
    assert caught.value.line == line


def test_not_utf8_names_the_line() -> None:
    with pytest.raises(ManifestError, match=r"^x:2: is not UTF-8"):
        parse(b"a: 1\nb: \xff\n", "x")


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert parse(b"\xef\xbb\xbfa: 1\n", "x").content == {"a": 1}


def test_aliases_repeat_values_that_nobody_shares() -> None:
    found = content("a: &x {b: [1]}\nc: *x\n")
    assert found["c"] == {"b": [1]}
    assert found["c"]["b"] is not found["a"]["b"]


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    started = time.monotonic()
    with pytest.raises(ManifestError, match=rf"run.yaml:\d+: holds more than {MAX_NODES} values"):
        parse("\n".join(lines).encode(), "run.yaml")
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_without_recursion(opening: str) -> None:
    with pytest.raises(ManifestError, match=f"nests deeper than {MAX_DEPTH} levels"):
        parse(b"a:\n  " + opening.encode() * 20_000, "run.yaml")


def test_aliases_cannot_pile_up_depth() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, MAX_DEPTH + 1)]
    with pytest.raises(ManifestError, match="nests deeper"):
        parse("\n".join(lines).encode(), "run.yaml")


def test_large_files_are_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"a: 1\n#" + b"x" * MAX_BYTES)
    with pytest.raises(ManifestError, match=rf"{path}: is larger than {MAX_BYTES} bytes"):
        read_manifest(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"none.yaml: No such file"):
        read_manifest(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("spec.algo.num_envs", "run.yaml:5"),
        ("algo.num_envs", "run.yaml:5"),
        ("algo.numEnvs", "run.yaml:5"),
        ("algo.gamma", "run.yaml:3"),
        ("spec.items[1]", "run.yaml:7"),
        ("metadata.name", "run.yaml:1"),
        ("nothing.like.it", "run.yaml"),
    ],
)
def test_places_of_paths(path: str, place: str) -> None:
    text = (
        "metadata: {name: x}\nspec:\n  algo:\n    name: sac\n    numEnvs: 0\n  items: [1,\n    2]"
    )
    assert parse(text.encode(), "run.yaml").place(path) == place


KEYS = st.text(min_size=1, max_size=8).filter(lambda key: key != "<<")
SCALARS = (
    st.integers(-(10**20), 10**20)
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.text(max_size=12)
    | st.from_regex(r"[-+0-9.eExob_:~]{1,8}", fullmatch=True)
    | st.sampled_from(["yes", "null", "", "~", "<<", "=", "2024-01-02", "0x1", "0o7", "1e6"])
)
PRINTABLE = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, PRINTABLE, min_size=1, max_size=4))
@example({"a": "\x85", "\u2028": ["x\u2029y"]})
def test_what_is_dumped_reads_back_the_same(value: dict[str, Any]) -> None:
    text = dump(value)
    found = content(text)
    assert found == value
    assert repr(found) == repr(value)
    assert yaml.safe_load(text) is not None


def test_a_dump_keeps_order_leaves_nulls_out_and_repeats_instead_of_aliasing() -> None:
    shared = [1]
    text = dump({"z": shared, "a": shared, "n": None, "m": {"n": None, "k": (1, 2)}})
    assert text == "z:\n  - 1\na:\n  - 1\nm:\n  k:\n    - 1\n    - 2\n"
