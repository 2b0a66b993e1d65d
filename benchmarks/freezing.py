"""What is frozen is not paid for: step, compile and optimizer memory as the best by hand.

python benchmarks/freezing.py            times as ratios, bytes
python benchmarks/freezing.py --short    operators and bytes only
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from measure import (
    counted,
    difference,
    heading,
    in_turns,
    is_short,
    operators,
    ratio,
    table,
    waits,
)
from mindspore import Parameter, nn
from nets import IMAGE, LABELS, ResNet

import msgrad as mg

ROUNDS = 10
COMPILES = 3
PARTS = ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")
# The cells from the input on that hold at least so much of the blocks of ResNet-50.
FROZEN = {"0 %": 0, "25 %": 3, "50 %": 4, "75 %": 5, "90 %": 6}


def adam(parameters: list[Parameter]) -> nn.Adam:
    """Make the optimizer of both sides."""
    return nn.Adam(parameters, 1e-3)


def network(short: bool) -> ResNet:
    """Make a ResNet-50, or where only to count a small one."""
    return ResNet([1, 1, 1, 1], width=2) if short else ResNet([3, 4, 6, 3])


def by_hand(count: int, short: bool) -> nn.Cell:
    """Freeze the first cells as the best program by hand does: flags before, norms held."""
    net = network(short)
    for name in PARTS[:count]:
        for parameter in getattr(net, name).get_parameters():
            parameter.requires_grad = False
        for _, cell in getattr(net, name).cells_and_names():
            if hasattr(cell, "use_batch_statistics"):
                cell.use_batch_statistics = False
    loss = nn.WithLossCell(net, nn.CrossEntropyLoss())
    return nn.TrainOneStepCell(loss, adam(net.trainable_params())).set_train()


def by_msgrad(count: int, short: bool) -> mg.TrainStep:
    """Freeze the first cells by name."""
    net = network(short)
    if count:
        mg.freeze(net, *PARTS[:count])
    step = mg.TrainStep(net, adam, nn.CrossEntropyLoss(), unreached="allow")
    return step.set_train()


def state_bytes(step: nn.Cell) -> int:
    """Count the bytes of the optimizer's state."""
    return sum(p.nbytes for p in step.optimizer.get_parameters() if p.name.startswith("moment"))


def compile_seconds(step: nn.Cell) -> float:
    """Time the first call."""
    begun = time.perf_counter()
    waits(step, IMAGE, LABELS)()
    return time.perf_counter() - begun


def row(share: str, short: bool) -> list[Any]:
    """Compare both sides."""
    count = FROZEN[share]
    compiles = {"hand": [], "ours": []}
    for _ in range(1 if short else COMPILES):
        hand, ours = by_hand(count, short), by_msgrad(count, short)
        compiles["hand"].append(compile_seconds(hand))
        compiles["ours"].append(compile_seconds(ours))
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
