"""The command line: one file a command, and no logic beyond putting the rooms together."""

from tuner.cli.app import main, run

__all__ = ["main", "run"]
