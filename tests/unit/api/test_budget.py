"""The memory arithmetic against figures worked out by hand, and the refusal that shows it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_api.budget import (
    KIB,
    MIB,
    TensorSizes,
    check,
    check_shared,
    lowered,
    memory_budget,
    sizes_of,
    usable_bytes,
)
from drivetrain_api.compose import compose, parse_run
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.tasks import TaskSpec

SMALL = TensorSizes(
    num_envs=10,
    batch_size=100,
    updates_per_step=2,
    observation_dim=5,
    inference_observation_dim=4,
    action_dim=3,
    inference_slot_capacity=2,
    replay_ingress_depth=2,
    replay_ingress_slot_rows=10,
    replay_rows=1000,
    on_device=False,
    critic_observation_dim=1,
)


def test_a_row_holds_both_observations_action_scalars_and_critic_values() -> None:
    assert SMALL.row_width == 2 * 5 + 3 + 3 + 2 * 1


def test_the_host_sum_by_hand() -> None:
    budget = memory_budget(SMALL)

    assert budget.inference_ring == 10 * (4 + 1 + 3) * 4
    assert budget.inference_exact == 10 * 4 * 4 + 10 * 4 + 10 * 3 * 4
    assert budget.inference == 320 + 2 * 64 * KIB + 32 * MIB
    assert budget.replay_storage == 1000 * 18 * 4
    assert budget.learner_batches == 2 * 100 * 2 * 18 * 4
    assert budget.replay_ingress == 2 * 10 * 18 * 4
    assert budget.replay == 72_000 + 28_800
    assert budget.total == budget.inference + 100_800 + 32 * MIB
    assert budget.shared == 320 + 1440
    assert budget.required == budget.host == budget.total + 1760


def test_the_device_sum_by_hand() -> None:
    sizes = dataclasses.replace(SMALL, on_device=True, ring_on_device=True, scratch_bytes=1000)
    budget = memory_budget(sizes)

    assert sizes.ipc_events == 3 * 2
    assert budget.inference_exact == 320 + 320 + 1000
    assert budget.inference == 1640 + (3 * 2 + 2) * 64 * KIB + 32 * MIB
    assert budget.replay == 72_000 + 28_800 + 1440
    assert budget.required == budget.total == budget.inference + 102_240 + 32 * MIB
    assert budget.shared == budget.host == 1440


def test_a_host_ring_beside_a_learner_on_a_device_by_hand() -> None:
    sizes = dataclasses.replace(SMALL, on_device=True)
    budget = memory_budget(sizes)

    assert sizes.ipc_events == 0
    assert budget.inference == 320 + 2 * 64 * KIB + 32 * MIB
    assert budget.required == budget.total == budget.inference + 102_240 + 32 * MIB
    assert budget.shared == budget.host == 320 + 1440


def test_a_ring_on_a_device_needs_the_learner_there() -> None:
    with pytest.raises(ValueError, match="needs the learner there"):
        dataclasses.replace(SMALL, ring_on_device=True)


def test_a_tenth_is_the_margin_of_what_is_large() -> None:
    large = dataclasses.replace(SMALL, replay_rows=10_000_000, num_envs=100_000_000)
    budget = memory_budget(dataclasses.replace(large, on_device=True, ring_on_device=True))

    assert budget.inference == budget.inference_exact + 8 * 64 * KIB + budget.inference_exact // 10
    assert budget.replay_workspace == budget.replay // 10


def test_a_composed_spec_gives_its_sizes() -> None:
    run = parse_run(
        {
            "metadata": {"name": "run"},
            "spec": {
                "algo": {"name": "sac", "numEnvs": 8, "batchSize": 16, "updatesPerStep": 3},
                "task": {"name": "toy"},
                "training": {"iterations": 1, "replayIngressDepth": 4},
            },
        }
    )
    task = TaskSpec("toy", "toy:make", observation_dim=7, action_dim=2, episode_length=10)

    sizes = sizes_of(compose(run.spec, task), observation_dim=7, action_dim=2, on_device=True)

    assert sizes == TensorSizes(
        num_envs=8,
        batch_size=16,
        updates_per_step=3,
        observation_dim=7,
        inference_observation_dim=7,
        action_dim=2,
        inference_slot_capacity=1,
        replay_ingress_depth=4,
        replay_ingress_slot_rows=8,
        replay_rows=4_194_304,
        on_device=True,
        ring_on_device=True,
        scratch_bytes=8 * (2 * 7 + 2 + 3) * 4,
    )


def test_exactly_eight_tenths_is_accepted_and_a_byte_more_is_not() -> None:
    budget = memory_budget(SMALL)
    enough = -(-budget.required * 10 // 8)

    check(budget, enough)
    check(budget, 2 * enough, ranks=2)
    with pytest.raises(SpecError):
        check(budget, enough - 2)
    with pytest.raises(SpecError):
        check(budget, 2 * enough - 4, ranks=2)


def refusal(sizes: TensorSizes, available: int, *, ranks: int = 1) -> Violation:
    with pytest.raises(SpecError) as caught:
        check(memory_budget(sizes), available, ranks=ranks)
    (violation,) = caught.value.violations
    return violation


def test_the_refusal_shows_the_whole_sum() -> None:
    violation = refusal(dataclasses.replace(SMALL, replay_rows=10_000_000), 512 * MIB)

    assert violation.path == "algo.replay_rows"
    assert violation.message == (
        "10000000 needs too much memory: inference 32.1 MiB + "
        "replay 10000000 rows x 18 x 4 B = 686.6 MiB + "
        "batches 2 x 100 rows x 2 updates x 18 x 4 B = 0.0 MiB + "
        "ingress 2 x 10 rows x 18 x 4 B = 0.0 MiB + workspace 68.7 MiB + "
        "inference ring 0.0 MiB = 787.5 MiB, "
        "above 0.8 x 512.0 MiB available = 409.6 MiB; at most 4997190 would fit"
    )


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"replay_rows": 50_000_000}, "algo.replay_rows"),
        ({"batch_size": 5_000_000, "updates_per_step": 1}, "algo.batch_size"),
        ({"updates_per_step": 5_000_000}, "algo.updates_per_step"),
        ({"num_envs": 20_000_000}, "algo.num_envs"),
        ({"replay_ingress_slot_rows": 10_000_000}, "training.replay_ingress_slot_rows"),
        (
            {"replay_ingress_slot_rows": 1_000_000, "replay_ingress_depth": 16},
            "training.replay_ingress_slot_rows",
        ),
        ({"inference_slot_capacity": 2000, "ring_on_device": True}, None),
    ],
)
@pytest.mark.parametrize("on_device", [False, True])
def test_the_refusal_names_what_weighs_most_and_the_most_that_fits(
    changes: dict[str, Any], path: str | None, on_device: bool
) -> None:
    if path is None:
        path, on_device = "training.inference_slot_capacity", True
    sizes = dataclasses.replace(SMALL, **{**changes, "on_device": on_device})
    limit = usable_bytes(300 * MIB)

    violation = refusal(sizes, 300 * MIB)

    assert violation.path == path
    fits = int(violation.message.partition("at most ")[2].partition(" ")[0])
    name = path.rpartition(".")[2]
    assert memory_budget(lowered(sizes, name, fits)).required <= limit
    assert memory_budget(lowered(sizes, name, fits + 1)).required > limit


def test_where_the_heaviest_cannot_be_lowered_enough_the_next_is_named() -> None:
    """A replay must hold a batch: with a large batch the batch itself has to become less."""
    sizes = dataclasses.replace(SMALL, batch_size=3_000_000, replay_rows=12_500_000)

    violation = refusal(sizes, 1500 * MIB)

    assert violation.path == "algo.batch_size"
    assert "at most " in violation.message


def test_where_no_value_fits_none_is_offered() -> None:
    violation = refusal(dataclasses.replace(SMALL, replay_rows=10_000_000), 10 * MIB)

    assert violation.message.endswith("lowering it alone is not enough")


def test_ranks_that_share_a_memory_share_its_budget() -> None:
    assert usable_bytes(1000) == 800
    assert usable_bytes(1000, ranks=4) == 200
    assert " / 2 ranks" in refusal(SMALL, 100 * MIB, ranks=2).message


def test_what_a_learner_on_a_device_shares_is_checked_against_the_host() -> None:
    sizes = dataclasses.replace(SMALL, on_device=True, replay_ingress_slot_rows=1_000_000)
    budget = memory_budget(sizes)
    enough = -(-budget.shared * 10 // 8)

    check_shared(budget, enough)
    check_shared(budget, 2 * enough, ranks=2)
    with pytest.raises(SpecError) as caught:
        check_shared(budget, 100 * MIB, ranks=2)
    (violation,) = caught.value.violations
    fits = (40 * MIB - 320) // (2 * 18 * 4)
    assert violation.path == "training.replay_ingress_slot_rows"
    assert violation.message == (
        "1000000 needs too much host memory: ingress 2 x 1000000 rows x 18 x 4 B = 137.3 MiB + "
        "inference ring 0.0 MiB = 137.3 MiB, above 0.8 x 100.0 MiB available / 2 ranks = "
        f"40.0 MiB; at most {fits} would fit"
    )
    check_shared(memory_budget(lowered(sizes, "replay_ingress_slot_rows", fits)), 50 * MIB)


def test_where_no_ingress_fits_the_host_none_is_offered() -> None:
    budget = memory_budget(dataclasses.replace(SMALL, on_device=True, num_envs=10_000_000))

    with pytest.raises(SpecError, match="alone is not enough"):
        check_shared(budget, MIB)


KNOBS = (
    "replay_rows",
    "num_envs",
    "batch_size",
    "updates_per_step",
    "observation_dim",
    "inference_observation_dim",
    "action_dim",
    "critic_observation_dim",
    "inference_slot_capacity",
    "replay_ingress_depth",
    "replay_ingress_slot_rows",
    "scratch_bytes",
)


@given(
    values=st.fixed_dictionaries({name: st.integers(1, 10**6) for name in KNOBS}),
    more=st.integers(1, 10**6),
    device=st.sampled_from([(False, False), (True, False), (True, True)]),
)
def test_the_parts_add_up_and_more_of_any_knob_never_needs_less(
    values: dict[str, Any], more: int, device: tuple[bool, bool]
) -> None:
    sizes = TensorSizes(on_device=device[0], ring_on_device=device[1], **values)
    budget = memory_budget(sizes)

    assert budget.total == budget.inference + budget.replay + budget.replay_workspace
    assert budget.required + budget.host == budget.total + budget.shared + (
        0 if sizes.on_device else budget.required
    )
    for name in KNOBS:
        step: dict[str, Any] = {name: values[name] + more}
        larger = memory_budget(dataclasses.replace(sizes, **step))
        assert larger.required >= budget.required
        assert larger.host >= budget.host
