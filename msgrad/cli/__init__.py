"""The command `msgrad`: parse, call, print, exit code."""

from msgrad.cli._main import main

__all__ = [
    "main",
]
