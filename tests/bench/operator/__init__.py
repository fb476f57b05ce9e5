"""The real `drivetrain-operator` on a real API server, under load, beside a bare client."""
