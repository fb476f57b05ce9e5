"""What the builders hand to an attempt's pods: the content of ``run.json``."""

from __future__ import annotations

from datetime import datetime

from drivetrain_api.base import ApiModel, Name, PositiveInt, ShortText
from drivetrain_api.trainingrun import TrainingRunSpec


class AttemptSpec(ApiModel):
    """Immutable input of one attempt, mounted in every pod at ``DRIVETRAIN_SPEC_FILE``."""

    name: Name
    """The TrainingRun's name."""
    namespace: Name
    """Its namespace."""
    uid: ShortText
    """Its UID: two runs never share a run directory."""
    attempt: PositiveInt
    """Number of this attempt: the fencing token of the run directory."""
    created: datetime
    """Creation time of the TrainingRun: names the run directory of every attempt alike."""
    spec: TrainingRunSpec
    """The manifest's spec, presets not yet applied; unset fields stay unset (dump with
    ``exclude_unset``), so that composition can tell what the user wrote."""
