"""All that a plan may touch in a network, noted, so that it can be compared."""

from __future__ import annotations

from mindspore import nn

import msgrad as mg
from tests.nets.plan_nets import Staged

RULES = [
    {"freeze": ["fc1", "norm"]},
    {"unfreeze": "fc1.bias"},
    {"stop": "norm", "at": "input"},
    {"scale": "norm", "by": 0.5, "at": "output"},
    {"reverse": ["fc2", "head"]},
]


def cells_below(net: nn.Cell) -> list[nn.Cell]:
    return [net] + [c for child in net._cells.values() if child for c in cells_below(child)]


def state_of(net: nn.Cell) -> dict:
    """Note every object, flag and bit that a plan may touch."""
    cells = cells_below(net)
    return {
        "cells": [id(cell) for cell in cells],
        "places": [(id(cell), key, id(c)) for cell in cells for key, c in cell._cells.items()],
        "training": [(cell.training, "add_flags" in vars(cell)) for cell in cells],
        "flags": [(id(p), p.name, p.requires_grad) for p in net.get_parameters()],
        "bits": [p.asnumpy().tobytes() for p in net.get_parameters()],
        "paths": [name for name, _ in net.parameters_and_names()],
    }


def a_net() -> Staged:
    """Return a network in training, with one weight frozen and one flag off by hand."""
    net = Staged()
    net.set_train()
    mg.freeze(net, "fc3.bias")
    net.fc2.bias.requires_grad = False
    return net
