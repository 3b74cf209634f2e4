"""The ``julia1`` command. Nothing heavy is imported before a command needs it."""

from julia1.cli.app import main

__all__ = ["main"]
