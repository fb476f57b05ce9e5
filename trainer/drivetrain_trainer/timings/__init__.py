"""How long the stages of an experiment took: what user code and training record by."""

from drivetrain_trainer.timings.recording import record_timing, timed_stage

__all__ = ["record_timing", "timed_stage"]
