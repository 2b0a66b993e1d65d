"""`msgrad plan`: the dry run of a config as tables, or as JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence

from msgrad._text import count, few, short_number
from msgrad.cli._terminal import OK, print_table
from msgrad.network import fold, fold_cells
from msgrad.runs import DryRun, Fate, StageFates, TakenBy, build, dry_run, load_config

_COLUMNS = 100
_MOST_LINES = 45
_MOST_PATTERNS = 3


def run(given: argparse.Namespace) -> int:
    """Print what a config would do to every parameter."""
    built = build(load_config(given.config, given.set), dry=True)
    inputs = built.task.call("inputs", built.config) if given.reach else None
    found = dry_run(built, inputs)
    if given.json:
        print(found.to_json())
    else:
        _print(found)
    return OK


def _print(found: DryRun) -> None:
    print(_wrapped(_summary(found)))
    if found.rules:
        _gap()
        rows = [(rule.rule, rule.does, _taken(found, rule)) for rule in found.rules]
        print_table(("rule", "does", "takes"), rows)
    _gap()
    names = [_column(found, stage) for stage in found.stages]
    print_table(("weights", "n", "size", *names), _lines(found))
    _gap()
    head = ("", "trains", "", "stays", "", "optimizer memory", "saved")
    print_table(head, list(map(_totals, names, found.stages)))


def _gap() -> None:
    # a table that rich draws begins with an empty line
    if not sys.stdout.isatty():
        print()


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
        f"stage {stage.stage}" if stage.stage is not None else "",
        stage.length if stage.length != "to the end" else "",
        stage.step if several else "",
    ]
    return ", ".join(filter(None, parts)) or "the run"


def _lines(found: DryRun) -> list[tuple[str, ...]]:
    """Fold what is treated alike in all stages; norm statistics, by their cells, come last."""
    columns = list(zip(*(stage.fates for stage in found.stages), strict=True))
    weights = {each[0].name: each for each in columns if not each[0].is_statistic}
    statistics: dict[str, list[tuple[Fate, ...]]] = {}
    for each in columns:
        if each[0].is_statistic:
            statistics.setdefault(each[0].name.rpartition(".")[0], []).append(each)
    lines = [
        _line(pattern, [weights[name] for name in names])
        for pattern, names in fold_cells({n: _texts(each) for n, each in weights.items()}).items()
    ]
    lines += [
        _line(f"statistics of {cells}", [each for name in names for each in statistics[name]])
        for cells, names in fold_cells({n: _texts(e[0]) for n, e in statistics.items()}).items()
    ]
    more = sum(int(line[1]) for line in lines[_MOST_LINES:])
    last = (f"… and {more} more, --json has them all", *[""] * (len(found.stages) + 2))
    return [*lines[:_MOST_LINES], last] if more else lines


def _line(pattern: str, rows: Sequence[Sequence[Fate]]) -> tuple[str, ...]:
    size = sum(row[0].bytes for row in rows)
    return (pattern, str(len(rows)), short_number(size, "B"), *_texts(rows[0]))


def _texts(row: Sequence[Fate]) -> tuple[str, ...]:
    return tuple(map(str, row))


def _taken(found: DryRun, rule: TakenBy) -> str:
    if rule.cells:
        return f"{count(len(rule.takes), 'cell')}: {few(list(fold(rule.takes)), _MOST_PATTERNS)}"
    taken = set(rule.takes)
    # a cell is named as a whole where all that can train in it is taken
    kinds = {f.name: f.name in taken for f in found.stages[0].fates if f.can_train}
    folded = [pattern for pattern, names in fold_cells(kinds).items() if names[0] in taken]
    return f"{count(len(taken), 'weight')}: {few(folded, _MOST_PATTERNS)}"


def _totals(name: str, stage: StageFates) -> tuple[str, ...]:
    trains, trained = stage.total(trains=True)
    stays, kept = stage.total(trains=False)
    return (
        name,
        str(trains),
        short_number(trained, "B"),
        str(stays),
        short_number(kept, "B"),
        short_number(stage.state_bytes, "B"),
        _saved(stage),
    )


def _saved(stage: StageFates) -> str:
    saved, whole = stage.state_bytes_of_all - stage.state_bytes, stage.state_bytes_of_all
    if saved < 0:
        return f"none, {short_number(-saved, 'B')} more for what is held"
    return f"{100 * saved / whole if whole else 0:.0f} % of {short_number(whole, 'B')}"


def _wrapped(text: str) -> str:
    columns = min(_COLUMNS, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _COLUMNS
    return textwrap.fill(text, columns, subsequent_indent="  ", break_on_hyphens=False)
