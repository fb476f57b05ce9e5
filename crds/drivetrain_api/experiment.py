"""`spec.experiment`: the suite that a run is a member of; and the stages of a run by name."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.base import ApiModel, Name, NonNegativeInt


class ExperimentConfig(ApiModel):
    """`spec.experiment`: the run's place among the seeds of an experiment.

    Its artifact directory, where timings.json lies, is then the folder that its run directory
    lies in; a run of its own keeps them in the run directory itself.
    """

    suite: Name
    """Name of the suite."""
    run_idx: NonNegativeInt
    """Index of the run's seed in the suite, from 0."""
    invocation: Annotated[str, Field(strict=True, min_length=1, max_length=128)]
    """Id of the suite's start; the same where that start is resumed."""


class RunStage(StrEnum):
    """What a person sees a run do, one after the other."""

    TRAIN = "train"
    CHECKPOINT_SAVE = "checkpoint_save"
    EVALUATION = "evaluation"


def stage_name(stage: RunStage, algo: AlgoName, *, continued: bool = False) -> str:
    """Key of a stage in timings.json.

    Args:
        stage: The stage; that of training is named after the algorithm.
        algo: The run's algorithm.
        continued: Whether it belongs to the continuation after a missed threshold.
    """
    name = f"{algo.value}_{stage.value}" if stage is RunStage.TRAIN else stage.value
    return f"{name}_auto_resume" if continued else name
