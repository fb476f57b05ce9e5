from __future__ import annotations

from typing import Any

import pytest

from drivetrain_trainer.soak.replay_fill import replay_fill


def document(**changes: Any) -> dict[str, Any]:
    sizes = {"on_device": False, "replay_rows": 1000, "num_envs": 4, **changes}
    return {
        "completed_iterations": 50,
        "total_env_steps": 50 * 4 * 3 * 2,
        "runtime_manifest": {
            "tensor_memory_budget": {"replay_storage": 172_000, "sizes": sizes},
            "runtime_limits": {"env_steps_per_sync": {"effective": 3}},
        },
    }


def test_rows_of_all_ranks_are_counted_until_their_rings_are_full() -> None:
    fill = replay_fill(document(), 100)
    assert fill.rows == 2000  # two ranks, by the steps of an iteration
    assert fill.bytes(None) == fill.bytes(100) == 0
    assert fill.bytes(1100) == 172_000
    assert fill.bytes(10_000) == 344_000


@pytest.mark.parametrize(
    "changes", [{"on_device": True}, {"on_device": None}, {"replay_rows": 0}, {"replay_rows": "9"}]
)
def test_what_is_unknown_or_on_a_device_explains_nothing(changes: dict[str, Any]) -> None:
    assert replay_fill(document(**changes), 0).bytes(5000) == 0


@pytest.mark.parametrize(
    "summary",
    [None, {}, {"runtime_manifest": 3}, {"runtime_manifest": {"tensor_memory_budget": 1}}],
)
def test_a_summary_without_a_budget_explains_nothing(summary: Any) -> None:
    assert replay_fill(summary, 0).bytes(5000) == 0
