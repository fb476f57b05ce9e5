"""The bounded report: what is kept where it is too long, and what is taken for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_api.digest import (
    PROGRESS_LIMIT,
    TERMINATION_LIMIT,
    Digest,
    MpsReport,
    decode,
    encode,
)
from drivetrain_api.status import (
    Artifact,
    Progress,
    RunSummaryDigest,
    SoakDigest,
    SoakVerdict,
)
from drivetrain_api.trainingrun import MpsMode

MPS = MpsReport(mode=MpsMode.IN_CONTAINER, ready=True, daemons=2, message="2 daemons answer")
FULL = Digest(
    attempt=3,
    exit_code=0,
    message="training is complete",
    progress=Progress(env_steps=5),
    run_summary=RunSummaryDigest(status="completed"),
    artifacts=(Artifact(name="video", uri="a/b.mp4"),),
    mps=MPS,
)


def test_a_short_report_is_kept_whole() -> None:
    assert decode(encode(FULL, TERMINATION_LIMIT), TERMINATION_LIMIT) == FULL


def test_mps_is_there_only_where_it_was_asked_for() -> None:
    assert "mps" not in json.loads(encode(Digest(attempt=1), TERMINATION_LIMIT))


@pytest.mark.parametrize(
    ("change", "left_out"),
    [
        ({"artifacts": (Artifact(name="video", uri="x" * 1000),) * 2}, {"artifacts"}),
        (
            {"run_summary": RunSummaryDigest(status="failed", error="\N{SNOWMAN}" * 400)},
            {"artifacts", "run_summary"},
        ),
    ],
)
def test_mps_outlasts_artifacts_and_summary(change: dict[str, object], left_out: set[str]) -> None:
    long = FULL.model_copy(update=change)
    shown = decode(encode(long, TERMINATION_LIMIT), TERMINATION_LIMIT)
    assert shown is not None
    everything = {"artifacts", "run_summary", "mps", "message", "progress"}
    empty = Digest(attempt=0)
    assert {name for name in everything if getattr(shown, name) == getattr(empty, name)} == left_out
    assert shown.mps == MPS


def test_its_message_is_cut_before_it_is_left_out() -> None:
    long = FULL.model_copy(
        update={"mps": MPS.model_copy(update={"message": "w" * 1024}), "message": "m" * 1024}
    )
    shown = decode(encode(long, TERMINATION_LIMIT), TERMINATION_LIMIT)
    assert shown is not None
    assert shown.mps is not None
    assert (shown.message, shown.mps.message) == ("m" * 256, "w" * 128)


def test_mps_is_the_last_to_go() -> None:
    bare = Digest(attempt=3, exit_code=0, message="stopped", progress=FULL.progress)
    limit = len(encode(bare, PROGRESS_LIMIT))
    assert decode(encode(bare.model_copy(update={"mps": MPS}), limit), limit) == bare
    with pytest.raises(ValueError, match=f"does not fit {limit - 1} bytes"):
        encode(bare, limit - 1)


def test_a_soaks_verdict_outlasts_mps_and_its_reason_is_cut_first() -> None:
    verdict = SoakDigest(verdict=SoakVerdict.FAILED, attempt=3, failure_reason="r" * 600)
    bare = Digest(attempt=3, exit_code=1, message="m" * 256, soak=verdict)
    long = bare.model_copy(update={"mps": MPS.model_copy(update={"message": "w" * 1024})})
    shown = decode(encode(long, 800), 800)
    assert shown is not None
    assert shown.soak == verdict.model_copy(update={"failure_reason": "r" * 128})
    without = bare.model_copy(update={"soak": None})
    limit = len(encode(without, PROGRESS_LIMIT))
    assert decode(encode(bare, limit), limit) == without


@given(
    message=st.text(max_size=1024),
    mps=st.none()
    | st.builds(
        MpsReport,
        mode=st.sampled_from(MpsMode),
        ready=st.booleans(),
        daemons=st.integers(0, 16),
        message=st.text(st.characters(max_codepoint=127), max_size=1024),
    ),
)
def test_what_is_encoded_is_within_the_limit_and_decodes(
    message: str, mps: MpsReport | None
) -> None:
    text = encode(FULL.model_copy(update={"message": message, "mps": mps}), PROGRESS_LIMIT)
    assert len(text.encode()) <= PROGRESS_LIMIT
    shown = decode(text, PROGRESS_LIMIT)
    assert shown is not None
    assert shown.mps is None or mps is not None
