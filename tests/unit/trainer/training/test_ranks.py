from __future__ import annotations

import pytest
import torch.distributed as dist

from drivetrain_api.artifacts.outcome import RANK_LOST
from drivetrain_trainer.runtime.faults import RankLostError
from drivetrain_trainer.training.ranks import named

GLOO = (
    "[/src/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:4711: Connection reset by "
    "peer. This may indicate a remote worker hanging"
)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (RuntimeError(GLOO), "lost another rank: Read error [127.0.0.1]:4711: Connection reset by"),
        (dist.DistBackendError("NCCL communicator was aborted"), "lost another rank: NCCL"),
        (dist.DistNetworkError("the store is gone"), "lost another rank: the store is gone"),
    ],
)
def test_a_failed_collective_has_a_name_of_its_own(failure: Exception, words: str) -> None:
    found = named(failure)
    assert isinstance(found, RankLostError)
    assert type(found).__name__ == RANK_LOST
    assert str(found).startswith(words)


@pytest.mark.parametrize("failure", [RuntimeError("CUDA error"), ValueError("/gloo/transport/")])
def test_any_other_failure_stays_what_it_is(failure: Exception) -> None:
    assert named(failure) is failure
