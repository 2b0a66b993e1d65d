"""The command line: parses, calls the library, prints; an error is what it says, no traceback.

Nothing here imports MindSpore before a command is chosen: help needs none, and where MindSpore
cannot be imported one line says why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import NoReturn

from msgrad.cli._terminal import BROKEN, FOUND, OK, REMEDY, STOPPED, UNUSABLE
from msgrad.errors import MsgradError, PlanError

_CODES = """
exit codes:
  0  all is well
  1  {found}
  2  the command line or a file cannot be used
  3  an error inside msgrad or MindSpore; --debug shows where
  130  stopped by Ctrl-C; 143 where MindSpore answered it
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # one line, without the usage
        if message.endswith("required: CONFIG"):
            # --set takes all words that follow it
            message += ", before --set"
        self.exit(UNUSABLE, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after ``msgrad``; None takes those of the process.

    Returns:
        The exit code: 0, 1 where something was found, 2 where the command or a file cannot be used,
        3 for an error inside, 130 where Ctrl-C stopped it. Where MindSpore cannot be imported, 1 of
        ``doctor`` and 3 of the others.
    """
    given = _parser().parse_args(arguments)
    try:
        try:
            run = _imported(given.command)
        # a missing library, another NumPy, a broken installation: all kinds of errors
        except Exception as error:
            return _cannot_start(error, given)
        return run(given)
    except BrokenPipeError:
        # `msgrad … | head` has seen enough; Python would complain once more at its end
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        hint = "; --resume goes on after its last epoch" if given.command == "train" else ""
        print(f"\nmsgrad: stopped{hint}", file=sys.stderr)
        return STOPPED
    except (MsgradError, OSError) as error:
        return _failed(error, UNUSABLE, "", debug=given.debug)
    # never a traceback, whatever it is
    except Exception as error:
        return _failed(error, BROKEN, f"{type(error).__name__}: ", debug=given.debug)


def _imported(command: str) -> Callable[[argparse.Namespace], int]:
    """Return the function of a command; its module imports MindSpore."""
    return import_module(f"msgrad.cli._{command}").run


def _cannot_start(error: Exception, given: argparse.Namespace) -> int:
    """Say in one line why MindSpore or msgrad cannot be imported."""
    if given.debug:
        traceback.print_exception(error)
    missing = [name for name in ("mindspore", "numpy") if find_spec(name) is None]
    first = (str(error).strip().splitlines() or [""])[0]
    found = (
        f"{' and '.join(missing)} not installed" if missing else f"{type(error).__name__}: {first}"
    )
    doctor = given.command == "doctor"
    if doctor and given.json:
        check = {"name": "MindSpore", "ok": False, "found": found, "remedy": REMEDY}
        print(json.dumps([check], indent=2))
    else:
        more = "" if missing else ", or run msgrad --debug doctor"
        print(f"msgrad cannot start: {found[:200]}; {REMEDY}{more}", file=sys.stderr)
    return FOUND if doctor else BROKEN


def _failed(error: Exception, code: int, kind: str, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    # what MindSpore adds of its own inside helps nobody here
    said = str(error).partition("- C++ Call Stack")[0].rstrip("- \n")
    # each problem begins a line
    texts = map(str, error.problems) if isinstance(error, PlanError) else [kind + said]
    for text in texts:
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        print("\n".join([f"msgrad: {lines[0] if lines else ''}", *lines[1:]]), file=sys.stderr)
    # only what has imported it can have run a task
    runs = sys.modules.get("msgrad.runs")
    location = runs.location_in_task(error) if runs is not None else None
    if location is None:
        return code
    print(f"msgrad: in {location}; --debug shows how it came there", file=sys.stderr)
    return UNUSABLE


# What each command does, an example, and when it exits with 1.
_COMMANDS = {
    "plan": (
        "say what a config would do to every weight, without training",
        "msgrad plan configs/digits_freeze_conv1.yaml --set optimizer.weight_decay=0.1",
        "never",
    ),
    "train": (
        "train as a config says, and show what moved",
        "msgrad train configs/digits_freeze_conv1.yaml --set epoch_size=3",
        "a weight that is held moved, or the audit before the training found problems",
    ),
    "audit": (
        "run a few real steps of a config, and say what happened to every weight and why",
        "msgrad audit configs/digits_freeze_conv1.yaml --html audit.html",
        "the audit found problems",
    ),
    "diff": (
        "compare the weights in two checkpoint files, bit by bit",
        "msgrad diff before.ckpt after.ckpt --held 'backbone' '*.bias'",
        "a held weight moved, or is missing or of another shape in one of the files",
    ),
    "doctor": (
        "look whether what msgrad needs is there and works",
        "msgrad doctor",
        "something is not as it has to be; its line says what to do",
    ),
}


def _parser() -> argparse.ArgumentParser:
    import msgrad

    parser = _Parser("msgrad", description="Which weights of a MindSpore network may change.")
    parser.add_argument("--version", action="version", version=f"msgrad {msgrad.__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    made = {name: _add(commands, name, *texts) for name, texts in _COMMANDS.items()}
    for name in ("plan", "train", "audit"):
        made[name].add_argument("config", metavar="CONFIG", help="a YAML file, see configs/")
        text = "change keys of the config, as optimizer.learning_rate=0.01 or plan.0.freeze=conv1"
        _add_words(made[name], "--set", "KEY=VALUE", text)
    reach = "compile the gradient graph, to find what no gradient reaches; else nothing is compiled"
    made["plan"].add_argument("--reach", action="store_true", help=reach)
    used = made["train"].add_mutually_exclusive_group()
    resume = "go on with a run that was stopped, where it lies: its ckpt_save_dir"
    used.add_argument("--resume", metavar="PATH", help=resume)
    overwrite = "clear what an earlier run left in the folder, and nothing else"
    used.add_argument("--overwrite", action="store_true", help=overwrite)
    made["audit"].add_argument("--html", metavar="PATH", help="also write a page with a picture")
    made["diff"].add_argument("a", metavar="A", help="a .ckpt or .safetensors file")
    made["diff"].add_argument("b", metavar="B", help="another one")
    _add_words(made["diff"], "--held", "PATTERN", "patterns of weights that may not have moved")
    return parser


def _add_words(command: argparse.ArgumentParser, option: str, word: str, text: str) -> None:
    command.add_argument(option, metavar=word, nargs="+", action="extend", default=[], help=text)


def _add(
    commands: argparse._SubParsersAction, name: str, what: str, example: str, found: str
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
    parser.set_defaults(command=name)
    return parser
