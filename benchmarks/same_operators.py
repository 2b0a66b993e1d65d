"""Stops, scales and freezes by msgrad cost what the same network edited by hand costs.

python benchmarks/same_operators.py            operators, and times as ratios
python benchmarks/same_operators.py --short    operators only, of three networks
"""

from __future__ import annotations

from collections.abc import Callable

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
from mindspore import Tensor, nn, ops
from nets import LABELS, NETS, Edit, adam, hold_by_hand, train_by_hand

import msgrad as mg
from msgrad._reach import find_reach

ROUNDS = 15
COMPILES = 5
FACTOR = 0.5


def halved(gradient: Tensor) -> Tensor:
    """Multiply a gradient by a half."""
    return gradient * FACTOR


def scaled(x: Tensor) -> Tensor:
    """Pass a tensor as it is, and halve its gradient."""
    return ops.InsertGradientOf(halved)(x)


def by_hand(kind: str, make: Callable[[Edit], nn.Cell]) -> nn.Cell:
    """Edit a network by hand, and train what is left with MindSpore's own train cell."""
    net = make({"stop": ops.stop_gradient, "scale": scaled}.get(kind))
    if kind == "freeze":
        hold_by_hand(net.first)
    return train_by_hand(net, [p for p in net.trainable_params() if p.name in left(kind, make)])


def by_msgrad(kind: str, make: Callable[[Edit], nn.Cell]) -> mg.TrainStep:
    """Do the same from outside."""
    net = make(None)
    if kind == "stop":
        mg.stop_gradient(net, "first")
    elif kind == "scale":
        mg.scale_gradient(net, "first", scale=FACTOR)
    else:
        mg.freeze(net, "first")
    weights = left(kind, make)
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


def row(name: str, kind: str, *, short: bool) -> list[object]:
    """Compare both sides on one network."""
    make, x = NETS[name]
    hand, ours = by_hand(kind, make), by_msgrad(kind, make)
    waits(hand, x, LABELS)()
    waits(ours, x, LABELS)()
    found = operators(hand), operators(ours.inner)
    apart = difference(*found)
    counted(apart, "none", name=f"{name}, {kind}")
    cells: list[object] = [name, kind, sum(found[0].values()), apart]
    if short:
        return cells
    times = in_turns({"ours": waits(ours, x, LABELS), "hand": waits(hand, x, LABELS)}, ROUNDS)
    compiles = in_turns(
        {
            "ours": lambda: waits(by_msgrad(kind, make), x, LABELS)(),
            "hand": lambda: waits(by_hand(kind, make), x, LABELS)(),
        },
        COMPILES,
        warm=0,
    )
    reach = seconds(lambda: find_reach(ours.network, (x, LABELS)))
    first = sorted(compiles["hand"])[COMPILES // 2]
    return [
        *cells,
        ratio(times, "ours", "hand"),
        ratio(compiles, "ours", "hand"),
        f"{reach / first:.2f}",
    ]


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    headers = ["network", "edit", "operators", "differ by"]
    if not short:
        headers += ["step", "compile", "reach check, in compiles, once"]
    names = SMALL if short else NETS
    table(headers, (row(name, kind, short=short) for name in names for kind in KINDS))


KINDS = ("stop", "scale", "freeze")
SMALL = ("LeNet-5", "LSTM", "DCGAN generator")

if __name__ == "__main__":
    main(short=is_short(__doc__))
