from __future__ import annotations

import math

import torch

from drivetrain_trainer.algorithms.sac.metrics import MeanMeter, fetch_means

CPU = torch.device("cpu")
SOUND, SKIPPED = torch.tensor(data=False), torch.tensor(data=True)


def test_means_leave_skipped_updates_out_and_start_anew() -> None:
    meter, idle = MeanMeter(("a", "b"), CPU), MeanMeter(("c",), CPU)
    meter.add((torch.tensor(1.0), torch.tensor(-2.0)), skipped=SOUND)
    meter.add((torch.tensor(math.nan), torch.tensor(math.inf)), skipped=SKIPPED)
    meter.add((torch.tensor(3.0), torch.tensor(4.0)), skipped=SOUND)
    assert fetch_means([meter, idle]) == {"a": 2.0, "b": 1.0}
    assert fetch_means([meter, idle]) == {}
