"""Chrome traces: what each process and thread did when, bounded, readable after any end."""

from drivetrain_trainer.tracing.flows import NO_FLOW, TICK_FLOW, FlowPoint, TickFlow
from drivetrain_trainer.tracing.recorder import FileTracer, open_tracer
from drivetrain_trainer.tracing.settings import Role, TraceSettings
from drivetrain_trainer.tracing.tracer import NULL_TRACER, FlowPhase, NullTracer, Tracer

__all__ = [
    "NO_FLOW",
    "NULL_TRACER",
    "TICK_FLOW",
    "FileTracer",
    "FlowPhase",
    "FlowPoint",
    "NullTracer",
    "Role",
    "TickFlow",
    "TraceSettings",
    "Tracer",
    "open_tracer",
]
