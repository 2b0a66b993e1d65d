"""`msgrad plan`: the dry run of a config as tables, or as JSON."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence

from msgrad._config import load_config
from msgrad._dry_run import HELD, NO_GRADIENT, TRAINS, DryRun, Fate, StageFates, dry_run
from msgrad._exit import OK
from msgrad._fold import fold_cells
from msgrad._run import build
from msgrad._summary import short_number
from msgrad._terminal import print_table
from msgrad._trainable import count, few

_COLUMNS = 100
_MOST_LINES = 45


def plan(given: argparse.Namespace) -> int:
    """Print what a config would do to every parameter."""
    run = build(load_config(given.config, given.set), dry=True)
    inputs = run.task.call("inputs", run.config) if given.reach else None
    found = dry_run(run, inputs)
    if given.json:
        print(found.to_json())
    else:
        _print(found)
    return OK


def _print(found: DryRun) -> None:
    print(_wrapped(_summary(found)))
    if found.rules:
        print()
        rows = [
            (rule.rule, rule.does, f"{'cells ' if rule.cells else ''}{few(_folded(rule.takes))}")
            for rule in found.rules
        ]
        print_table(("rule", "does", "takes"), rows)
    print()
    names = [_column(found, stage) for stage in found.stages]
    print_table(("weights", "n", "size", *names), _lines(found))
    print()
    print_table(
        ("", "trains", "", "stays", "", "optimizer memory", "saved"),
        [_totals(name, stage) for name, stage in zip(names, found.stages, strict=True)],
    )


def _summary(found: DryRun) -> str:
    fates = found.stages[0].fates
    size = short_number(sum(fate.bytes for fate in fates), "B")
    if found.reach:
        how = "the gradient graph was compiled to find what a gradient reaches"
    else:
        how = "nothing was compiled; --reach compiles the gradient graph to find what it reaches"
        if any(rule.does.startswith("stop ") for rule in found.rules):
            how += ", such as what a stop cuts off before its own layer"
    return f"{found.name}: {count(len(fates), 'parameter')}, {size}; {how}"


def _column(found: DryRun, stage: StageFates) -> str:
    """Name a column: the stage, the step, or both."""
    several = len({each.step for each in found.stages}) > 1
    parts = [
        f"stage {stage.stage}: {stage.length}" if stage.stage is not None else "",
        stage.step if several else "",
    ]
    return ", ".join(filter(None, parts)) or "the run"


def _lines(found: DryRun) -> list[tuple[str, ...]]:
    by_name = {
        fate.name: (fate, tuple(_text(each) for each in column))
        for fate, *column in zip(
            found.stages[0].fates, *(stage.fates for stage in found.stages), strict=True
        )
    }
    kinds = {name: texts for name, (_, texts) in by_name.items()}
    folded = fold_cells(kinds)
    lines = []
    for pattern, names in folded.items():
        size = sum(by_name[name][0].bytes for name in names)
        lines.append((pattern, str(len(names)), short_number(size, "B"), *kinds[names[0]]))
    more = lines[_MOST_LINES:]
    if more:
        count = sum(int(line[1]) for line in more)
        lines = [*lines[:_MOST_LINES], (f"… and {count} more, --json has them all", *[""] * 3)]
        lines[-1] = lines[-1][: len(lines[0])]
    return lines


def _text(fate: Fate) -> str:
    said = fate.fate
    if fate.fate in (TRAINS, HELD) and fate.rate is not None:
        said += f", rate {fate.rate:g}" + (f", decay {fate.decay:g}" if fate.decay else "")
    if fate.by and fate.by != "the model":
        joint = ", " if fate.fate == TRAINS else ": " if fate.by == NO_GRADIENT else " by "
        said += joint + _short(fate.by)
    return said + "".join(f", changed by {_short(label)}" for label in fate.updates)


def _short(label: str) -> str:
    """Leave the place in the file to the table of the rules."""
    return label.partition(" (")[0]


def _folded(names: Sequence[str]) -> list[str]:
    return list(fold_cells(dict.fromkeys(names, 0))) if len(names) > 1 else list(names)


def _totals(name: str, stage: StageFates) -> tuple[str, ...]:
    trains, trained = stage.total(trains=True)
    stays, kept = stage.total(trains=False)
    saved = stage.state_bytes_of_all - stage.state_bytes
    share = f"{100 * saved / stage.state_bytes_of_all:.0f} %" if stage.state_bytes_of_all else "–"
    return (
        name,
        str(trains),
        short_number(trained, "B"),
        str(stays),
        short_number(kept, "B"),
        short_number(stage.state_bytes, "B"),
        f"{short_number(saved, 'B')} of {short_number(stage.state_bytes_of_all, 'B')} ({share})",
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
