"""The command `msgrad`: parse, call, print, exit code."""

from msgrad.cli._main import main
from msgrad.cli._terminal import Progress

__all__ = [
    "Progress",
    "main",
]
