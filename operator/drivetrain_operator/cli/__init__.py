"""The command line.

`main` declares every command and imports click alone; what a command needs is imported once
it runs, so that ``--help`` and shell completion stay fast.
"""
