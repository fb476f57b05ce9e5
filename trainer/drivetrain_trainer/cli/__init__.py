"""Commands that need the trainer; loaded by the command line through entry points.

Nothing here imports Torch before a command runs: ``drivetrain --help`` lists them too.
"""
