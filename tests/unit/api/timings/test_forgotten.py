"""What a run that starts over, or goes on, takes out of the records first."""

from __future__ import annotations

import pytest

from drivetrain_api.timings.model import Stage, StageRun, Timings
from drivetrain_api.timings.rules import forgotten

Record = tuple[int | None, str | None]


def timings(stages: dict[str, list[Record]]) -> Timings:
    return Timings(
        root={
            name: Stage.of(
                StageRun(seconds=1.0, run_idx=index, invocation=invocation)
                for index, invocation in records
            )
            for name, records in stages.items()
        }
    )


def records(found: Timings) -> dict[str, list[Record]]:
    return {
        name: [(run.run_idx, run.invocation) for run in stage.runs]
        for name, stage in found.root.items()
    }


BEFORE: dict[str, list[Record]] = {
    "sac_train": [(0, "a"), (1, "a"), (2, "a")],
    "evaluation": [(1, "a")],
    "videos": [(None, None)],
}


@pytest.mark.parametrize(
    ("run_idx", "invocation", "stages", "left"),
    [
        pytest.param(
            1,
            "a",
            None,
            {"sac_train": [(0, "a"), (2, "a")], "videos": [(None, None)]},
            id="from scratch: its own, in every stage",
        ),
        pytest.param(
            1,
            "a",
            {"evaluation"},
            {"sac_train": [(0, "a"), (1, "a"), (2, "a")], "videos": [(None, None)]},
            id="goes on: what it does again",
        ),
        pytest.param(
            0,
            "a",
            None,
            {"sac_train": [(1, "a"), (2, "a")], "evaluation": [(1, "a")]},
            id="index 0: others of the invocation stay",
        ),
        pytest.param(0, "b", None, {}, id="index 0 of another invocation: nothing stays"),
        pytest.param(
            1,
            "b",
            None,
            {"sac_train": [(0, "a"), (2, "a")], "videos": [(None, None)]},
            id="a later index takes its own alone",
        ),
        pytest.param(0, "b", {"videos"}, BEFORE, id="a stage without an index is not its own"),
    ],
)
def test_what_is_forgotten(
    run_idx: int, invocation: str, stages: set[str] | None, left: dict[str, list[Record]]
) -> None:
    found = forgotten(timings(BEFORE), run_idx, invocation, stages)
    assert records(found) == left
    assert all(stage.total_seconds == len(stage.runs) for stage in found.root.values())
