"""Stops, scales and freezes by msgrad cost what the same network edited by hand costs.

Each program by hand is made twice, before and after ours: how far two equal programs are apart is
a column of its own. Each network has a process of its own, since a process slows with its graphs.

python benchmarks/same_operators.py            operators, and times as ratios
python benchmarks/same_operators.py --short    operators only, of three networks
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import mindspore as ms
from measure import (
    Ratio,
    compiled_in_turns,
    counted,
    difference,
    heading,
    is_short,
    milliseconds,
    operators,
    ratio,
    seconds,
    steps_in_turns,
    table,
)
from mindspore import Tensor, nn, ops
from nets import LABELS, NETS, Edit, adam, hold_by_hand, train_by_hand

import msgrad as mg
from msgrad.network import find_reach

ROUNDS = 12
FACTOR = 0.5


def halved(gradient: Tensor) -> Tensor:
    """Multiply a gradient by a half."""
    return gradient * FACTOR


def scaled(x: Tensor) -> Tensor:
    """Pass a tensor as it is, and halve its gradient."""
    return ops.InsertGradientOf(halved)(x)


def by_hand(kind: str, make: Callable[[Edit], nn.Cell], weights: set[str]) -> nn.Cell:
    """Edit a network by hand, and train what is left with MindSpore's own train cell."""
    net = make({"stop": ops.stop_gradient, "scale": scaled}.get(kind))
    if kind == "freeze":
        hold_by_hand(net.first)
    return train_by_hand(net, [p for p in net.trainable_params() if p.name in weights])


def by_msgrad(kind: str, make: Callable[[Edit], nn.Cell], weights: set[str]) -> mg.TrainStep:
    """Do the same from outside."""
    net = make(None)
    if kind == "stop":
        mg.stop_gradient(net, "first")
    elif kind == "scale":
        mg.scale_gradient(net, "first", scale=FACTOR)
    else:
        mg.freeze(net, "first")
    return mg.TrainStep(
        net,
        adam,
        nn.CrossEntropyLoss(),
        trainable=lambda name, parameter: name in weights,
        unreached="allow",
    ).set_train()


def left(kind: str, make: Callable[[Edit], nn.Cell]) -> set[str]:
    """Name what a program by hand would train: nothing that is frozen or behind the stop."""
    net = make(None)
    names = {str(p.name) for p in net.trainable_params()}
    return names if kind == "scale" else names - {str(p.name) for p in net.first.get_parameters()}


SIDES = {"hand": by_hand, "ours": by_msgrad, "again": by_hand}


def against_hand(times: dict[str, list[float]]) -> Ratio:
    """Compare ours with the mean of both programs by hand."""
    both = zip(times["hand"], times["again"], strict=True)
    mean = [(one + other) / 2 for one, other in both]
    return ratio({"ours": times["ours"], "mean": mean}, "ours", "mean")


def row(name: str, kind: str, *, short: bool) -> list[object]:
    """Compare both sides on one network."""
    make, x = NETS[name]
    weights = left(kind, make)
    sides = {side: partial(way, kind, make, weights) for side, way in SIDES.items()}
    compiles, made = compiled_in_turns(sides, (x, LABELS), 1)
    hand, ours = made["hand"][0], made["ours"][0]
    found = operators(hand), operators(ours.inner)
    apart = difference(*found)
    counted(apart, "none", name=f"{name}, {kind}")
    cells: list[object] = [name, kind, sum(found[0].values()), apart]
    if short:
        return cells
    times = steps_in_turns(made, (x, LABELS), ROUNDS)
    reach = seconds(lambda: find_reach(ours.network, (x, LABELS)))
    return [
        *cells,
        milliseconds(times["hand"]),
        str(against_hand(times)),
        str(ratio(times, "again", "hand")),
        f"{against_hand(compiles).median:.3f}",
        f"{reach / statistics.median(compiles['hand']):.2f}",
    ]


def rows_of(name: str) -> list[list[object]]:
    """Compare all edits of one network in a process of its own."""
    command = [sys.executable, __file__, NETWORK, name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    headers = ["network", "edit", "operators", "differ by"]
    if short:
        rows = (row(name, kind, short=True) for name in SMALL for kind in KINDS)
        return table(headers, rows)
    headers += ["step, ms", "step ratio", "by hand twice", "compile ratio"]
    headers += ["reach check, in compiles, once"]
    table(headers, (cells for name in NETS for cells in rows_of(name)))
    return None


KINDS = ("stop", "scale", "freeze")
SMALL = ("LeNet-5", "LSTM", "DCGAN generator")

NETWORK = "--network"

if __name__ == "__main__":
    if NETWORK in sys.argv:
        ms.set_context(mode=ms.GRAPH_MODE)
        found = [row(sys.argv[-1], kind, short=False) for kind in KINDS]
        print(json.dumps(found))
    else:
        main(short=is_short(__doc__))
