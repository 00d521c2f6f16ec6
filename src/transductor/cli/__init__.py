"""The command line: one file for each group of commands, which read options, call the library and print."""

from transductor.cli.app import app, main

__all__ = ["app", "main"]
