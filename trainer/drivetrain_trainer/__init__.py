"""Trainer of Drivetrain: launcher, runtime, physics, environments, algorithms, telemetry."""
