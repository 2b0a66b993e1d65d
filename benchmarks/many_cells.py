"""Freezing, wrapping and planning are linear in the cells: 10,000 in two seconds each.

python benchmarks/many_cells.py            times
python benchmarks/many_cells.py --short    what is changed only
"""

from __future__ import annotations

import time
from collections.abc import Callable

from measure import counted, heading, is_short, table
from mindspore import nn

import msgrad as mg

SIZES = (1_000, 10_000)
PLAN = {
    "plan": [
        {"freeze": "0"},
        {"group": "*.bias", "weight_decay": 0.0},
        {"stop": "0.0"},
    ],
    "stages": [{"train": "1.0", "epochs": 1}, {"train": "the rest"}],
}


def network(count: int) -> nn.Cell:
    """Make a network of this many dense layers, in two halves."""
    return nn.SequentialCell(
        *(nn.SequentialCell(*(nn.Dense(1, 1) for _ in range(count // 2))) for _ in range(2))
    )


def plan(net: nn.Cell) -> int:
    """Check and apply a plan, and say what becomes of the weights."""
    return len(mg.Plan.from_dict(PLAN).apply(net).frozen)


CHANGES: dict[str, Callable[[nn.Cell], int]] = {
    "freeze": lambda net: len(mg.freeze(net, "0").names),
    "unfreeze": lambda net: len(mg.unfreeze(net, "0").names),
    "wrap": lambda net: len(mg.wrap(net, "0.*", wrapper=mg.StopGradient)),
    "unwrap": lambda net: len(mg.unwrap(net)),
    "plan": plan,
}


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    sizes = (100,) if short else SIZES
    rows: dict[str, list[object]] = {name: [name] for name in CHANGES}
    for size in sizes:
        net = network(size)
        for name, change in CHANGES.items():
            begun = time.process_time()
            count = change(net)
            seconds = time.process_time() - begun
            counted(count, size // 2 if "wrap" in name else size, name=f"{name} of {size} cells")
            rows[name].append(count if short else f"{seconds:.3f}")
    unit = "changed" if short else "s"
    table(["change", *(f"{size:,} cells, {unit}" for size in sizes)], list(rows.values()))


if __name__ == "__main__":
    main(short=is_short(__doc__))
