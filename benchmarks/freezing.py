"""What is frozen is not paid for: step, compile, optimizer and peak memory as the best by hand.

The peak is what MindSpore plans for Ascend, in a dry run of each program in a process of its own.

python benchmarks/freezing.py            times as ratios, bytes
python benchmarks/freezing.py --short    operators and bytes only
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import mindspore as ms
from measure import (
    compiled_in_turns,
    counted,
    difference,
    heading,
    is_short,
    operators,
    random,
    ratio,
    steps_in_turns,
    table,
)
from mindspore import nn
from nets import IMAGE, LABELS, adam, hold_by_hand, resnet50_or_small, train_by_hand

import msgrad as mg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "ascend"))
from surroundings import RESULT, dry_run, prepare

ROUNDS = 10
COMPILES = 4
PARTS = ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")
# The cells from the input on that hold at least so much of the blocks of ResNet-50.
FROZEN = {"0 %": 0, "25 %": 3, "50 %": 4, "75 %": 5, "90 %": 6}
# A batch as it is trained on a card; on the CPU the times are those of a small one.
SIDE, BATCH = 224, 32
PROGRAM = str(Path(__file__).resolve())


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


SIDES: dict[str, Callable[[int, bool], nn.Cell]] = {"hand": by_hand, "ours": by_msgrad}


def state_bytes(step: nn.Cell) -> int:
    """Count the bytes of the optimizer's state."""
    return sum(p.nbytes for p in step.optimizer.get_parameters() if p.name.startswith("moment"))


def dry(side: str, count: int, short: bool) -> None:
    """Compile one step for Ascend, and write what it plans; runs in a process of its own."""
    mg.use_device("Ascend")
    step = SIDES[side](count, short)
    images = random(*((2, 3, 32, 32) if short else (BATCH, 3, SIDE, SIDE)))
    labels = ms.Tensor([0] * len(images), ms.int32)
    ms.runtime.reset_peak_memory_stats()
    step(images, labels)
    planned = ms.runtime.max_memory_allocated()
    Path(RESULT).write_text(json.dumps(planned), encoding="utf-8")


def planned_peaks(shares: list[str], short: bool) -> dict[tuple[str, str], int]:
    """Plan each step for Ascend, two at a time; bytes by share and side."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        place, variables = prepare(Path(name))
        print(f"Planned for Ascend with {place}.\n")

        def peak(share: str, side: str) -> int:
            folder = Path(tempfile.mkdtemp(dir=name))
            given = ["--dry", side, str(FROZEN[share]), *(["--short"] if short else [])]
            return dry_run(PROGRAM, *given, variables=variables, folder=folder)

        keys = [(share, side) for share in shares for side in SIDES]
        return dict(zip(keys, pool.map(peak, *zip(*keys, strict=True)), strict=True))


def row(share: str, short: bool) -> list[Any]:
    """Compare both sides."""
    count = FROZEN[share]
    sides = {side: partial(way, count, short) for side, way in SIDES.items()}
    compiles, made = compiled_in_turns(sides, (IMAGE, LABELS), 1 if short else COMPILES)
    hand, ours = made["hand"][0], made["ours"][0]
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
    times = steps_in_turns(made, (IMAGE, LABELS), ROUNDS)
    cells += [ratio(times, "ours", "hand"), ratio(compiles, "ours", "hand")]
    cells += [statistics.median(times["ours"]), statistics.median(compiles["ours"])]
    return cells


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    shares = ["0 %", "90 %"] if short else list(FROZEN)
    peaks = planned_peaks(shares, short)
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
    headers += ["planned peak, MiB", "of by hand"]
    for share, cells in zip(shares, rows, strict=True):
        ours, hand = peaks[share, "ours"], peaks[share, "hand"]
        cells += [f"{ours / 2**20:.1f}", f"{ours / hand:.3f}"]
    table(headers, rows)


if __name__ == "__main__":
    if "--dry" in sys.argv:
        side, count = sys.argv[2:4]
        dry(side, int(count), "--short" in sys.argv)
    else:
        main(short=is_short(__doc__))
