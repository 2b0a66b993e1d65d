"""The learning rate and the weight decay that an optimizer gives to each weight, as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import mindspore as ms
from mindspore import Tensor, nn

from msgrad._mode import running_in
from msgrad._weights import copy_of


class Rates(NamedTuple):
    """What an optimizer would use at its next step."""

    lr: float
    weight_decay: float


def rates_by_weight(optimizer: nn.Cell) -> dict[int, Rates]:
    """Map the id of each weight to its rate and decay, schedules evaluated at the present step."""
    groups = getattr(optimizer, "param_groups", None)
    if groups:
        return {
            id(p): Rates(_number(g["lr"]), _number(g.get("weight_decay", 0.0)))
            for g in groups
            for p in g["params"]
        }
    weights = list(optimizer.parameters)
    # a schedule is a Cell, which GRAPH_MODE would compile
    with running_in(ms.PYNATIVE_MODE):
        lr, decay = optimizer.get_lr(), optimizer.get_weight_decay()
    lrs, decays = _each(lr, len(weights)), _each(decay, len(weights))
    # MindSpore multiplies a fixed decay by the loss scale, as it does with the gradients
    scale = getattr(optimizer, "loss_scale", 1.0)
    return {
        id(p): Rates(rate, wd / scale if decays_it else 0.0)
        for p, rate, wd, decays_it in zip(weights, lrs, decays, _flags(optimizer), strict=True)
    }


def _flags(optimizer: nn.Cell) -> Sequence[bool]:
    return getattr(optimizer, "decay_flags", None) or [True] * len(optimizer.parameters)


def _each(value: Any, count: int) -> list[float]:
    if isinstance(value, (tuple, list)):
        return [_number(one) for one in value]
    return [_number(value)] * count


def _number(value: Any) -> float:
    number = float(copy_of(value).ravel()[0] if isinstance(value, Tensor) else value)
    # as it was written: 0.1, not the 0.10000000149 that float32 makes of it
    return float(f"{number:.7g}")
