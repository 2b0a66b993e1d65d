"""Tables on a terminal: drawn by rich where it is installed, else, and in a pipe, plain text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from msgrad._extras import needed
from msgrad.errors import MissingPackageError

_GAP = "  "
_LONGEST = 30


def print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], file: TextIO | None = None
) -> None:
    """Print a table, its columns aligned.

    Args:
        head: The names of the columns.
        rows: The cells of each row.
        file: Where to; None is the standard output.
    """
    out = file or sys.stdout
    if out.isatty():
        try:
            _print_rich(head, rows, out)
        except MissingPackageError:
            pass
        else:
            return
    print(plain_table(head, rows), file=out)


def plain_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as plain text.

    Examples:
        >>> print(plain_table(["weight", "change"], [["fc.bias", "0.5"]]))
        weight   change
        fc.bias  0.5
    """
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_GAP.join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _print_rich(head: Sequence[str], rows: Sequence[Sequence[str]], file: TextIO) -> None:
    table = needed("rich.table", "a table").Table(box=needed("rich.box", "a table").SIMPLE_HEAD)
    text = needed("rich.text", "a table").Text
    for number, name in enumerate(head):
        # the name of what a row is about is not broken where it leaves room for the rest
        longest = max((len(row[number]) for row in rows), default=0)
        whole = number == 0 and longest <= _LONGEST
        table.add_column(name, overflow="fold", no_wrap=whole)
    for row in rows:
        # as text, since brackets would be read as markup
        table.add_row(*map(text, row))
    needed("rich.console", "a table").Console(file=file).print(table)


REMEDY = "pip install 'mindspore>=2.7' 'numpy>=1.26,<2'"
OK, FOUND, UNUSABLE, BROKEN = range(4)
# As a shell reports a program that SIGINT ended.
STOPPED = 130
