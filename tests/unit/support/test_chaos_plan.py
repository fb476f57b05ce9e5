from __future__ import annotations

import pytest
from tests.support.chaos.expected import expected
from tests.support.chaos.plan import (
    BETWEEN_RANKS,
    RESTARTS,
    Fault,
    Plan,
    Topology,
    Victim,
    When,
    plan_of,
)

from drivetrain_api.compose import parse_run

PLANS = [plan_of(seed) for seed in range(400)]


def test_a_seed_gives_the_same_trial_each_time() -> None:
    assert [plan_of(seed) for seed in range(400)] == PLANS
    assert len(set(map(str, PLANS))) == len(PLANS)


@pytest.mark.parametrize("drawn", [Fault, When, Topology])
def test_everything_is_drawn_now_and_then(drawn: type) -> None:
    found = {getattr(plan, drawn.__name__.lower()) for plan in PLANS}
    assert found == set(drawn)


def test_every_process_is_killed_now_and_then() -> None:
    assert {plan.victim for plan in PLANS if plan.fault is Fault.KILL} == set(Victim)


def test_a_fault_that_the_machine_has_no_means_for_is_not_drawn() -> None:
    plans = [plan_of(seed, frozenset({Fault.KILL, Fault.HANG})) for seed in range(100)]
    assert {plan.fault for plan in plans} == {Fault.KILL, Fault.HANG}


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_makes_sense(fault: Fault) -> None:
    for plan in [plan_of(seed, fault=fault) for seed in range(50)]:
        assert plan.fault is fault
        assert plan.rank < plan.ranks
        assert plan.ranks == 2 or fault not in BETWEEN_RANKS
        run = parse_run(plan.manifest(stall_s=20))
        assert run.spec.topology.world_size == plan.ranks
        assert run.spec.restart.max_restarts == RESTARTS
        wanted = expected(plan)
        assert wanted.endings or not wanted.certain


@pytest.mark.parametrize(
    ("victim", "record"),
    [
        (Victim.RANK, {"reason": "AttemptFailed", "message": "rank 0 was killed by SIGKILL"}),
        (Victim.LAUNCHER, {"reason": "AttemptFailed", "message": "exit code 137 (signal 9)"}),
    ],
)
def test_an_ending_is_told_by_reason_and_words(victim: Victim, record: dict[str, str]) -> None:
    (ending,) = expected(_killing(victim)).endings
    assert ending.fits(record)
    assert not ending.fits({**record, "reason": "Stalled"})
    assert not ending.fits({**record, "message": "lost another rank"})


def _killing(victim: Victim) -> Plan:
    plans = (plan_of(seed, fault=Fault.KILL) for seed in range(400))
    return next(plan for plan in plans if plan.victim is victim and plan.rank == 0)
