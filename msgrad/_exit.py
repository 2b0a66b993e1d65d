"""The exit codes of the command line."""

from __future__ import annotations

OK, FOUND, UNUSABLE, BROKEN = range(4)
# As a shell reports a program that SIGINT ended.
STOPPED = 130
