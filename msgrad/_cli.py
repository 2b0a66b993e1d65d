"""The command line: parses, calls the library, prints; errors are one line."""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import NoReturn

from msgrad._compare import CheckpointMovement, diff_checkpoints
from msgrad._doctor import checks
from msgrad._errors import MsgradError
from msgrad._fold import fold_cells
from msgrad._names import select_names
from msgrad._snapshot import MovementRow
from msgrad._terminal import print_table

OK, FOUND, UNUSABLE, BROKEN = range(4)
_CODES = """
exit codes:
  0  all is well
  1  {found}
  2  the command line or a file cannot be used
  3  an error inside msgrad or MindSpore; --debug shows where
"""
_MOST_LINES = 60


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # one line, without the usage
        self.exit(UNUSABLE, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after ``msgrad``; None takes those of the process.

    Returns:
        The exit code: 0, 1 where something was found, 2 where the command or a file cannot be used,
        3 for an error inside.
    """
    given = _parser().parse_args(arguments)
    try:
        return given.run(given)
    except BrokenPipeError:
        # `msgrad … | head` has seen enough; Python would complain once more at its end
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (MsgradError, OSError) as error:
        return _failed(error, UNUSABLE, "", debug=given.debug)
    # never a traceback, whatever it is
    except Exception as error:
        return _failed(error, BROKEN, f"{type(error).__name__}: ", debug=given.debug)


def _failed(error: Exception, code: int, kind: str, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    print(f"msgrad: {kind}{' '.join(str(error).split())}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    import msgrad

    parser = _Parser("msgrad", description="Which weights of a MindSpore network may change.")
    parser.add_argument("--version", action="version", version=f"msgrad {msgrad.__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    diff = _add(
        commands,
        "diff",
        _diff,
        "compare the weights in two checkpoint files, bit by bit",
        "msgrad diff before.ckpt after.ckpt --held 'backbone' '*.bias'",
        "a held weight moved, or is missing or of another shape in one of the files",
    )
    diff.add_argument("a", metavar="A", help="a .ckpt or .safetensors file")
    diff.add_argument("b", metavar="B", help="another one")
    held = "patterns of weights that may not have moved"
    diff.add_argument(
        "--held", metavar="PATTERN", nargs="+", action="extend", default=[], help=held
    )
    _add(
        commands,
        "doctor",
        _doctor,
        "look whether what msgrad needs is there and works",
        "msgrad doctor",
        "something is not as it has to be; its line says what to do",
    )
    return parser


def _add(
    commands: argparse._SubParsersAction,
    name: str,
    run: Callable[[argparse.Namespace], int],
    what: str,
    example: str,
    found: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        epilog=f"example:\n  {example}\n{_CODES.format(found=found)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for machines")
    # in both places, and the command's does not undo the other
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    parser.set_defaults(run=run)
    return parser


# --- diff


def _diff(given: argparse.Namespace) -> int:
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
        print(json.dumps({**content, "held": sorted(held), "held_moved": broken}, indent=2))
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


# --- doctor


def _doctor(given: argparse.Namespace) -> int:
    found = list(checks())
    if given.json:
        print(json.dumps([asdict(check) for check in found], indent=2))
    else:
        rows = [("ok" if c.ok else "FAILED", c.name, c.found, c.remedy) for c in found]
        print_table(("", "what", "found", "what to do"), rows)
    return OK if all(check.ok for check in found) else FOUND
