from __future__ import annotations

from itertools import product

from drivetrain_trainer.training.seeding import derive_seed


def test_streams_of_a_run_never_share_a_seed() -> None:
    streams = list(product(range(20), ("collector", "evaluator", "replay"), range(16)))
    assert len({derive_seed(*stream) for stream in streams}) == len(streams)


def test_a_stream_is_the_same_on_every_machine_and_release() -> None:
    assert derive_seed(0, "collector", 0) == 3418369244
