"""The kubectl plugin: `kubectl drivetrain`."""
