"""Backends by name, those of others included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain_api.errors import SpecError
from drivetrain_trainer.telemetry.backends.base import BackendContext
from drivetrain_trainer.telemetry.backends.registry import make_backends

MakeContext = Callable[..., BackendContext]

PLUGIN = """
from drivetrain_trainer.telemetry.backends.base import BackendCapabilities

class Lines:
    name = "lines"
    capabilities = BackendCapabilities()
    details = {}
    def __init__(self, context): self.context = context
    def open(self): pass
    def write(self, record): pass
    def flush(self): pass
    def close(self): pass

class Lacking:
    name = "lacking"

def raising(context):
    raise RuntimeError("no licence")
"""


@pytest.fixture
def plugin(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution with backends of its own."""
    place: Path = tmp_path_factory.mktemp("site")
    (place / "lines_plugin.py").write_text(PLUGIN)
    info = place / "lines_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lines-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[drivetrain.loggers]\n"
        "lines = lines_plugin:Lines\n"
        "lacking = lines_plugin:Lacking\n"
        "raising = lines_plugin:raising\n"
        "absent = lines_plugin:absent\n"
        "broken = no_such_module:make\n"
    )
    monkeypatch.syspath_prepend(str(place))


@pytest.mark.parametrize(
    ("logger", "names"),
    [
        ("none", []),
        ("tensorboard", ["tensorboard"]),
        ("jsonl,tensorboard", ["jsonl", "tensorboard"]),
    ],
)
def test_backends_come_in_the_order_of_their_names(
    make_context: MakeContext, logger: str, names: list[str]
) -> None:
    context = make_context(logger=logger)
    assert [backend.name for backend in make_backends(context)] == names
    assert list(context.directory.iterdir()) == [], "none is opened yet"


@pytest.mark.usefixtures("plugin")
def test_anybodys_backend_is_made_from_the_same_context(make_context: MakeContext) -> None:
    context = make_context(logger="jsonl,lines")
    _, lines = make_backends(context)
    assert lines.name == "lines"
    assert vars(lines)["context"] is context


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("logger", "words"),
    [
        ("line", "no logger 'line' is installed; did you mean lines?"),
        ("broken", "No module named 'no_such_module'"),
        ("absent", "absent"),
        ("raising", "raising (drivetrain.loggers) cannot be made: RuntimeError: no licence"),
        ("lacking", "lacking"),
    ],
)
def test_one_that_cannot_be_made_is_refused_before_training(
    make_context: MakeContext, logger: str, words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        make_backends(make_context(logger=f"jsonl,{logger}"))
    (violation,) = caught.value.violations
    assert violation.path == "training.logger"
    assert words in violation.message
