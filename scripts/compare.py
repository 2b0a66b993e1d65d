"""Put runs of the digits side by side: how far conv1 moved, and how well each one reads.

python scripts/compare.py digits_baseline digits_freeze_conv1
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

WEIGHT = "conv1.weight"


def main() -> None:
    """Print one row per run named on the command line."""
    table = Table("run", f"{WEIGHT}", "max change", "accuracy", box=box.SIMPLE_HEAD)
    for name in sys.argv[1:]:
        folder = Path("runs", name)
        figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
        row = next(layer for layer in figures["layers"] if layer["name"] == WEIGHT)
        state = "moved" if row["bits_changed"] else "bits equal"
        state = f"held, {state}" if row["held"] else state
        accuracy = figures["epochs"][-1]["accuracy"]
        table.add_row(name, state, f"{row['max_change']:.4g}", f"{accuracy:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
