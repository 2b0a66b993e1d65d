"""The exit codes of the command line."""

from __future__ import annotations

OK, FOUND, UNUSABLE, BROKEN = range(4)
