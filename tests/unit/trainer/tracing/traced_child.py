"""Records without end until it is killed; run by test_recorder.py."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from drivetrain_trainer.tracing import FileTracer, FlowPoint, Role, TickFlow, TraceSettings


def main() -> None:
    tracer = FileTracer(TraceSettings(Path(sys.argv[1]), 0, Role.COLLECTOR, 1, 10**9))
    flow = TickFlow(tracer)
    for tick in count():
        with tracer.span("Inference Request", {"tick": tick}):
            flow.mark(FlowPoint.REQUEST, tick)


if __name__ == "__main__":
    main()
