"""What a run shows: the kernels of a layer before and after, and how far each weight moved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich import box
from rich.table import Table

from msgrad import Movement
from msgrad.runs import RunResult

MOVED, HELD = "#4477aa", "#cc3311"
_MOST_BARS = 60


def weights_table(before: np.ndarray, after: np.ndarray) -> Table:
    """Show the kernels of a convolution before and after, side by side; of its first channel."""
    table = Table("filter", "before", "after", box=box.SIMPLE, show_lines=True)
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        table.add_row(str(index), _kernel(old[0]), _kernel(new[0]))
    return table


def _kernel(values: np.ndarray) -> str:
    return "\n".join(" ".join(f"{value:7.4f}" for value in row) for row in values)


def verdict(movement: Movement, name: str) -> str:
    """Say in one line whether a weight kept its bits."""
    row = next(row for row in movement.rows if row.name == name)
    count = int(np.prod(row.shape))
    if not row.bits_changed:
        return f"{name}: bits equal, all {count} values as before the run"
    return f"{name}: moved, max change {row.max_change:.4g}, {row.bits_changed} of {count} values"


def draw(path: Path, figures: RunResult, name: str) -> None:
    """Draw how far each weight moved, held ones in red, as a picture."""
    rows, held = figures.movement.rows[:_MOST_BARS], set(figures.held)
    names = [row.name for row in rows]
    changes = [row.max_change for row in rows]
    figure = Figure(figsize=(8, 1.2 + 0.45 * len(names)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(names, changes, color=[HELD if name in held else MOVED for name in names])
    labels = [_label(row.max_change, row.bits_changed, row.name in held) for row in rows]
    for text, weight in zip(axes.bar_label(bars, labels, padding=4), names, strict=True):
        text.set_color(HELD if weight in held else "black")
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set_xlim(left=0)
    title, label = f"{name}: how far each weight moved", "largest change of an element"
    axes.set(title=title, xlabel=f"{label}, from first to last step")
    figure.savefig(path, dpi=120)


def _label(change: float, bits_changed: int, held: bool) -> str:
    state = f"{change:.4g}" if bits_changed else "0 (bits equal)"
    return f"held: {state}" if held else state
