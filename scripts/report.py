"""What a run leaves behind: the table of conv1, the picture, the figures, the resolved config."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib.figure import Figure
from rich import box
from rich.table import Table

from msgrad import Movement

MOVED, HELD = "#4477aa", "#cc3311"


def weights_table(before: np.ndarray, after: np.ndarray) -> Table:
    """Show the kernels of a convolution before and after, side by side."""
    table = Table("filter", "before", "after", box=box.SIMPLE, show_lines=True)
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        table.add_row(str(index), _kernel(old[0]), _kernel(new[0]))
    return table


def _kernel(values: np.ndarray) -> str:
    return "\n".join(" ".join(f"{value:7.4f}" for value in row) for row in values)


def verdict(movement: Movement) -> str:
    """Say in one line whether some weights kept their bits."""
    names = ", ".join(row.name for row in movement.rows)
    count = sum(int(np.prod(row.shape)) for row in movement.rows)
    if movement.equal:
        return f"{names}: bits equal, all {count} values as before the run"
    largest = max(row.max_change for row in movement.rows)
    changed = sum(row.bits_changed for row in movement.rows)
    return f"{names}: moved, max change {largest:.4g}, {changed} of {count} values"


def save_run(
    folder: Path, config: Any, movement: Movement, held: Sequence[str], figures: dict[str, Any]
) -> None:
    """Write config.yaml, figures.json and layers.png into the folder of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    resolved = yaml.safe_dump(asdict(config), sort_keys=False)
    (folder / "config.yaml").write_text(resolved, encoding="utf-8")
    rows = json.loads(movement.to_json())["rows"]
    layers = [{**row, "held": row["name"] in held} for row in rows]
    text = json.dumps({**figures, "layers": layers}, indent=2)
    (folder / "figures.json").write_text(text + "\n", encoding="utf-8")
    _draw(folder / "layers.png", movement, held, f"{config.name}: how far each weight moved")


def _draw(path: Path, movement: Movement, held: Sequence[str], title: str) -> None:
    names = [row.name for row in movement.rows]
    changes = [row.max_change for row in movement.rows]
    figure = Figure(figsize=(8, 1.2 + 0.45 * len(names)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(names, changes, color=[HELD if name in held else MOVED for name in names])
    labels = [_label(row.max_change, row.bits_changed, row.name in held) for row in movement.rows]
    for text, name in zip(axes.bar_label(bars, labels, padding=4), names, strict=True):
        text.set_color(HELD if name in held else "black")
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set_xlim(left=0)
    axes.set(title=title, xlabel="largest change of an element, from first to last step")
    figure.savefig(path, dpi=120)


def _label(change: float, bits_changed: int, held: bool) -> str:
    state = f"{change:.4g}" if bits_changed else "0 (bits equal)"
    return f"held: {state}" if held else state
