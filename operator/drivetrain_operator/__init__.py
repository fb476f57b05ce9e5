"""Kubernetes operator, local executor and command line of Drivetrain; never imports torch."""
