"""`msgrad train`: a run of a config, and what moved in it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from msgrad._text import count
from msgrad.cli._terminal import FOUND, OK, print_table
from msgrad.errors import AuditError
from msgrad.network import MovementRow, fold_cells
from msgrad.runs import Epoch, Run, RunResult, build, load_config
from msgrad.runs import train as train_run

_MOST_LINES = 45


def train(given: argparse.Namespace) -> int:
    """Train, print each epoch and what moved; 1 where a held weight moved."""
    run = build(load_config(given.config, given.set))
    tell = run.rank == 0 and not given.json
    if tell:
        print(title(run), flush=True)
    try:
        report = print_epoch if tell else _nothing
        figures = train_run(
            run,
            resume=given.resume,
            overwrite=given.overwrite,
            report=report,
            tick=Progress(tell),
        )
    except AuditError as error:
        print(f"msgrad: {error}", file=sys.stderr)
        return FOUND
    if tell:
        print_figures(run, figures)
    elif run.rank == 0:
        print(figures.to_json())
    return FOUND if figures.broken else OK


def title(run: Run) -> str:
    """Say what is about to run."""
    config = run.config
    stages = [] if run.schedule is None else [count(len(run.schedule.stages), "stage")]
    parts = [f"{config.name} on {run.device}", f"{config.mode} mode"]
    return ", ".join([*parts, count(config.epoch_size, "epoch"), *stages])


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


def _nothing(_: Epoch) -> None:
    """Print nothing."""


def print_epoch(epoch: Epoch) -> None:
    """Print one line."""
    width = len(str(epoch.epochs))
    parts = [f"epoch {epoch.epoch:{width}}/{epoch.epochs}"]
    if epoch.stage is not None:
        parts.append(f"stage {epoch.stage}")
    parts += [f"{name} {value:.4f}" for name, value in epoch.named_losses.items()]
    parts += [f"{name} {value:.3f}" for name, value in epoch.figures.items()]
    print("  ".join([*parts, f"{epoch.seconds:.1f} s"]), flush=True)
    for note in epoch.notes:
        print(note, flush=True)


def print_figures(run: Run, figures: RunResult) -> None:
    """Print what moved and what was held, and where the run lies."""
    rows = {row.name: row for row in figures.movement.rows}
    kinds = {name: _state(row, figures) for name, row in rows.items()}
    lines = [
        (pattern, str(len(names)), kinds[names[0]], _most([rows[name] for name in names]))
        for pattern, names in fold_cells(kinds).items()
    ]
    done = figures.epochs[0].epoch - 1
    change = f"largest change since epoch {done}" if done else "largest change"
    print_table(("weights", "n", "", change), lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        print(f"… and {len(lines) - _MOST_LINES} more lines; figures.json has them all")
    held = len(figures.held) - len(figures.broken)
    if figures.held:
        print(f"held: {held} of {len(figures.held)} kept their bits", end="")
        print(f"; moved: {', '.join(figures.broken)}" if figures.broken else "")
    best = figures.best
    if best is not None:
        print(f"best: {best['metric']} {best['value']:.4g} in epoch {best['epoch']}, best.ckpt")
    files = ["config.yaml", "figures.json", "weights.ckpt", *["best.ckpt"] * (best is not None)]
    print(f"wrote {run.config.save_dir}/: {', '.join(files)}, last/")


def _state(row: MovementRow, figures: RunResult) -> str:
    if row.name in figures.held:
        return "held, MOVED" if row.bits_changed else "held, bits equal"
    return "moved" if row.bits_changed else "bits equal"


def _most(rows: Sequence[MovementRow]) -> str:
    return f"{max(row.max_change for row in rows):.4g}"
