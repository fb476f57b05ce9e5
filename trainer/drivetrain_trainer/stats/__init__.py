"""The stats tracker: scopes, denominators, reductions, collectives; diagnostics are fed through it.

``from drivetrain_trainer import stats``: the functions here record in the default tracker.
"""

from drivetrain_trainer.stats.aggregation import aggregate
from drivetrain_trainer.stats.device_means import DeviceMeans
from drivetrain_trainer.stats.reduce_type import (
    COUNT_SUFFIX,
    ReduceType,
    ReduceTypeConflictError,
    StatsError,
    UnknownDenominatorError,
)
from drivetrain_trainer.stats.registry import (
    denominator,
    export,
    export_all,
    forget_all,
    get,
    record_timing,
    scalar,
    scope,
    stat,
    stat_compact,
)
from drivetrain_trainer.stats.tracker import StatsTracker
from drivetrain_trainer.stats.workflow_context import Workflow, stat_scope, workflow

__all__ = [
    "COUNT_SUFFIX",
    "DeviceMeans",
    "ReduceType",
    "ReduceTypeConflictError",
    "StatsError",
    "StatsTracker",
    "UnknownDenominatorError",
    "Workflow",
    "aggregate",
    "denominator",
    "export",
    "export_all",
    "forget_all",
    "get",
    "record_timing",
    "scalar",
    "scope",
    "stat",
    "stat_compact",
    "stat_scope",
    "workflow",
]
