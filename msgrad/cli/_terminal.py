"""Tables on a terminal: drawn by rich where it is installed, else, and in a pipe, plain text."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO

from msgrad._extras import needed
from msgrad._text import plain_table
from msgrad.errors import MissingPackageError

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


class Progress:
    """A line on a terminal that counts the steps of an epoch, written over again.

    Args:
        tell: Whether to write at all; where the output is no terminal nothing is written.
    """

    def __init__(self, tell: bool = True) -> None:
        self._tell = tell and sys.stdout.isatty()
        self._next = 0.0

    def __call__(self, done: int, size: int) -> None:
        """Count one step; a few times a second it is written."""
        now = time.monotonic()
        if self._tell and (now >= self._next or done == size):
            self._next = now + 0.2
            text = f"step {done}/{size}" if done < size else ""
            print(f"\r\033[K{text}", end="", flush=True)


REMEDY = "pip install 'mindspore>=2.7' 'numpy>=1.26,<2'"
OK, FOUND, UNUSABLE, BROKEN = range(4)
# As a shell reports a program that SIGINT ended.
STOPPED = 130
