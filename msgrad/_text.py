"""Numbers and names as text."""

from __future__ import annotations

from collections.abc import Sequence


def count(number: int, noun: str) -> str:
    """Write a number of things, in the singular where there is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def few(names: Sequence[str], most: int = 5, comma: str = ", ") -> str:
    """Write the first of some names or texts, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return comma.join(names[:most]) + more
