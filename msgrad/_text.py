"""Numbers, names and tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def count(number: int, noun: str) -> str:
    """Write a number of things, in the singular where there is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def few(names: Sequence[str], most: int = 5, comma: str = ", ") -> str:
    """Write the first of some names or texts, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return comma.join(names[:most]) + more


def cut(lines: Sequence[str], most: int, rest: str = "and {} more") -> list[str]:
    """Return the first lines, and one more that counts the rest."""
    more = len(lines) - most
    return [*lines[:most], *([rest.format(more)] if more > 0 else [])]


def shortened(name: str, most: int) -> str:
    """Return a name that is not too long; its end tells more than its beginning."""
    return name if len(name) <= most else "…" + name[len(name) - most + 1 :]


def short_number(number: int, unit: str = "") -> str:
    """Return a number with one decimal and the prefix k, M, G or T, of steps of a thousand."""
    if number < 1000:
        return f"{number} {unit}".rstrip()
    power = next(power for power in (1, 2, 3, 4) if round(number / 1000**power, 1) < 1000)
    return f"{number / 1000**power:.1f} {'kMGT'[power - 1]}{unit}"


def plain_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as plain text, its columns aligned.

    Examples:
        >>> print(plain_table(["weight", "change"], [["fc.bias", "0.5"]]))
        weight   change
        fc.bias  0.5
    """
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
