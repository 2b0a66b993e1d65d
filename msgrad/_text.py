"""Numbers, names and tables as text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


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


def plain_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    most: int | None = None,
) -> str:
    """Return a table as plain text, its columns aligned.

    Args:
        head: The names of the columns.
        rows: The cells of each row.
        right: The numbers of the columns that stand at the right.
        most: The width that it may have: long cells of the first column lose their beginning.

    Examples:
        >>> print(plain_table(["weight", "change"], [["fc.bias", "0.5"]], right=[1]))
        weight   change
        fc.bias     0.5
    """
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if most is not None:
        widths[0] = min(widths[0], max(most - sum(widths[1:]) - 2 * len(widths[1:]), len(head[0])))
    align = [str.rjust if number in right else str.ljust for number in range(len(widths))]
    cut_off = [[shortened(line[0], widths[0]), *line[1:]] for line in lines]
    return "\n".join(
        "  ".join(
            put(cell, width) for put, cell, width in zip(align, line, widths, strict=True)
        ).rstrip()
        for line in cut_off
    )
