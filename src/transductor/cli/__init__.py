"""The command line, one file per group of commands: parse, call, print."""

from transductor.cli.app import app, main

__all__ = ["app", "main"]
