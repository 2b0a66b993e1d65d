"""`msgrad diff`: two checkpoints side by side."""

from __future__ import annotations

import argparse
import json
import logging
import math
from collections.abc import Sequence

from msgrad._files import as_json
from msgrad.checkpoints import CheckpointMovement, diff_checkpoints
from msgrad.cli._terminal import FOUND, OK, print_table
from msgrad.network import MovementRow, fold_cells, select_names

_MOST_LINES = 60


def run(given: argparse.Namespace) -> int:
    """Print what moved from one checkpoint to another; 1 where a held weight did."""
    previous = logging.root.manager.disable
    # what MindSpore logs of a damaged file is said again by the error
    logging.disable(logging.CRITICAL)
    try:
        movement = diff_checkpoints(given.a, given.b)
    finally:
        logging.disable(previous)
    names = [*(row.name for row in movement.rows), *_missing(movement)]
    held = set(select_names(names, *given.held)) if given.held else set()
    broken = [name for name in movement.changed if name in held]
    if given.json:
        content = json.loads(movement.to_json())
        print(as_json({**content, "held": sorted(held), "held_moved": broken}))
    else:
        _print_movement(movement, held, broken)
    return FOUND if broken else OK


def _missing(movement: CheckpointMovement) -> list[str]:
    return [name for name in movement.changed if name not in set(movement.moved)]


def _print_movement(movement: CheckpointMovement, held: set[str], broken: Sequence[str]) -> None:
    rows = {row.name: row for row in movement.rows}
    # a weight that moved has a line of its own
    kinds = {n: (n if r.bits_changed else "", n in held) for n, r in rows.items()}
    lines = [_line(p, [rows[n] for n in names], held) for p, names in fold_cells(kinds).items()]
    # a sort keeps the order of the network among equals
    lines.sort(key=lambda line: line[1] != "MOVED")
    print_table(("weight", "held", "n", "max change", "l2", "bits changed"), lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        print(f"… and {len(lines) - _MOST_LINES} more lines; --json has them all")
    for where, names in (
        ("only in A", movement.only_in_first),
        ("only in B", movement.only_in_second),
        ("of another shape or type (A / B)", movement.unlike),
    ):
        for name in names:
            print(f"{where}: {name}")
    print(f"{len(movement.moved)} of {len(rows)} weights moved", end="")
    print(f"; {len(movement.state)} values of optimizer state not compared" * bool(movement.state))
    if held:
        print(f"held: {len(broken)} of {len(held)} moved" + ": " * bool(broken) + ", ".join(broken))


def _line(pattern: str, rows: Sequence[MovementRow], held: set[str]) -> tuple[str, ...]:
    row = rows[0]
    if not row.bits_changed:
        # whole cells of equal weights share a line
        state = "yes" if row.name in held else ""
        return pattern, state, str(len(rows)), "0", "0", "bits equal"
    state = "MOVED" if row.name in held else ""
    count = f"{row.bits_changed} of {math.prod(row.shape)}"
    return row.name, state, "1", f"{row.max_change:.4g}", f"{row.l2:.4g}", count
