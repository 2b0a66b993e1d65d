"""Only what the optimizer does not hold stays: conv1 of the demo, held in several ways.

python benchmarks/what_stops_a_weight.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
from mindspore import nn

import msgrad as mg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tasks"))
from digits import DigitsNet, digits_dataset, load_digits

EPOCHS = 12


def adamw(parameters: list[ms.Parameter]) -> nn.Optimizer:
    """Return the optimizer of the demo."""
    return nn.AdamWeightDecay(parameters, 0.005, weight_decay=0.1)


def plain(net: nn.Cell) -> nn.Cell:
    """Return MindSpore's own train cell over what is trainable now."""
    loss = nn.WithLossCell(net, nn.CrossEntropyLoss())
    return nn.TrainOneStepCell(loss, adamw(net.trainable_params()))


def flag_before(net: nn.Cell) -> nn.Cell:
    """Set requires_grad, then make the optimizer."""
    net.conv1.weight.requires_grad = False
    return plain(net)


def flag_after(net: nn.Cell) -> nn.Cell:
    """Make the optimizer, then set requires_grad: GRAPH_MODE does not read it any more."""
    step = plain(net)
    net.conv1.weight.requires_grad = False
    return step


def stopped(net: nn.Cell) -> nn.Cell:
    """Stop with msgrad."""
    mg.stop_gradient(net, "conv1")
    return mg.TrainStep(net, adamw, nn.CrossEntropyLoss())


def frozen(net: nn.Cell) -> nn.Cell:
    """Freeze with msgrad."""
    mg.freeze(net, "conv1")
    return mg.TrainStep(net, adamw, nn.CrossEntropyLoss())


WAYS: dict[str, tuple[bool, Callable[[nn.Cell], nn.Cell]]] = {
    "nothing": (False, plain),
    "`ops.stop_gradient` in `construct`": (True, plain),
    "`requires_grad = False` after the optimizer is made": (False, flag_after),
    "`requires_grad = False` before it": (False, flag_before),
    "`mg.stop_gradient` and `mg.TrainStep`": (False, stopped),
    "`mg.freeze` and `mg.TrainStep`": (False, frozen),
}


def largest_change(way: str) -> float:
    """Train as the demo does and return how far conv1 moved."""
    by_hand, make_step = WAYS[way]
    ms.set_seed(1)
    net = DigitsNet(stop_by_hand=by_hand)
    before = mg.Snapshot(net, "conv1")
    step = make_step(net).set_train()
    batches = digits_dataset(*load_digits()[0], 32, shuffle=True)
    # one iterator for all epochs, which shuffles anew for each
    rows = batches.create_tuple_iterator(num_epochs=EPOCHS)
    for _ in range(EPOCHS):
        for image, label in rows:
            step(image, label)
    return before.compare().rows[0].max_change


if __name__ == "__main__":
    mg.use_device()
    for name in WAYS:
        print(f"{name:52} {largest_change(name):.2g}")
