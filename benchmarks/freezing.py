"""What is frozen is not paid for: step, compile and optimizer memory as the best by hand.

python benchmarks/freezing.py            times as ratios, bytes
python benchmarks/freezing.py --short    operators and bytes only
"""

from __future__ import annotations

import statistics
from typing import Any

from measure import (
    counted,
    difference,
    heading,
    in_turns,
    is_short,
    operators,
    ratio,
    seconds,
    table,
    waits,
)
from mindspore import nn
from nets import IMAGE, LABELS, adam, hold_by_hand, resnet50_or_small, train_by_hand

import msgrad as mg

ROUNDS = 10
COMPILES = 3
PARTS = ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")
# The cells from the input on that hold at least so much of the blocks of ResNet-50.
FROZEN = {"0 %": 0, "25 %": 3, "50 %": 4, "75 %": 5, "90 %": 6}


def by_hand(count: int, short: bool) -> nn.Cell:
    """Freeze the first cells as the best program by hand does: flags before, norms held."""
    net = resnet50_or_small(short)
    for name in PARTS[:count]:
        hold_by_hand(getattr(net, name))
    return train_by_hand(net)


def by_msgrad(count: int, short: bool) -> mg.TrainStep:
    """Freeze the first cells by name."""
    net = resnet50_or_small(short)
    if count:
        mg.freeze(net, *PARTS[:count])
    step = mg.TrainStep(net, adam, nn.CrossEntropyLoss(), unreached="allow")
    return step.set_train()


def state_bytes(step: nn.Cell) -> int:
    """Count the bytes of the optimizer's state."""
    return sum(p.nbytes for p in step.optimizer.get_parameters() if p.name.startswith("moment"))


def row(share: str, short: bool) -> list[Any]:
    """Compare both sides."""
    count = FROZEN[share]
    compiles = {"hand": [], "ours": []}
    for _ in range(1 if short else COMPILES):
        hand, ours = by_hand(count, short), by_msgrad(count, short)
        compiles["hand"].append(seconds(waits(hand, IMAGE, LABELS)))
        compiles["ours"].append(seconds(waits(ours, IMAGE, LABELS)))
    apart = difference(operators(ours.inner), operators(hand))
    counted(apart, "none", name=f"operators, {share} frozen")
    counted(state_bytes(ours), state_bytes(hand), name=f"optimizer bytes, {share} frozen")
    cells: list[Any] = [
        share,
        sum(operators(hand).values()),
        apart,
        f"{state_bytes(ours) / 2**20:.1f}",
    ]
    if short:
        return cells
    times = in_turns(
        {"ours": waits(ours, IMAGE, LABELS), "hand": waits(hand, IMAGE, LABELS)}, ROUNDS
    )
    cells += [ratio(times, "ours", "hand"), ratio(compiles, "ours", "hand")]
    cells += [statistics.median(times["ours"]), statistics.median(compiles["ours"])]
    return cells


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    shares = ["0 %", "90 %"] if short else list(FROZEN)
    rows = [row(share, short) for share in shares]
    headers = ["frozen", "operators", "differ by", "optimizer state, MiB"]
    if not short:
        headers += [
            "step ratio",
            "compile ratio",
            "step, of all trained",
            "compile, of all trained",
        ]
        whole = rows[0][-2:]
        for cells in rows:
            cells[-2:] = [f"{a / b:.2f}" for a, b in zip(cells[-2:], whole, strict=True)]
    table(headers, rows)


if __name__ == "__main__":
    main(short=is_short(__doc__))
