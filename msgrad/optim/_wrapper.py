"""Optimizers around an optimizer: its parameters and interface, and something beside it."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn
from mindspore.experimental import optim

from msgrad.network import every_cell

OPTIMIZERS = (nn.Optimizer, optim.Optimizer)


class OptimizerWrapper(nn.Cell):
    """An optimizer that hands its gradients to another one.

    All public attributes that it does not have itself are those of the inner optimizer, so that
    train cells, reducers and callbacks find `parameters`, `learning_rate`, `get_lr` and the rest.
    """

    def __init__(self, optimizer: nn.Cell) -> None:
        # not super(): a subclass may also be of MindSpore's Optimizer, whose __init__ wants weights
        nn.Cell.__init__(self, auto_prefix=False)
        self.optimizer = optimizer
        # without it a functional graph takes the gradients as constants and compiles at every step
        self.enable_tuple_broaden = True

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            inner = self.__dict__.get("_cells", {}).get("optimizer")
            if (
                inner is not None
                and name not in ("optimizer", "bprop", "construct")
                and hasattr(inner, name)
            ):
                return getattr(inner, name)
        return super().__getattr__(name)

    def construct(self, grads: tuple[Tensor, ...]) -> Any:
        return self.optimizer(grads)


def optimizers_in(cell: nn.Cell) -> list[nn.Cell]:
    """List the optimizers in a cell, of one around another the outer."""
    found: list[nn.Cell] = []
    inside: set[int] = set()
    for part in every_cell(cell):
        if isinstance(part, (*OPTIMIZERS, OptimizerWrapper)) and id(part) not in inside:
            found.append(part)
            inside |= {id(inner) for inner in every_cell(part)}
    return found


def parts_of(optimizer: nn.Cell) -> list[nn.Cell]:
    """List the optimizers that one consists of: itself, where it does not hand gradients on.

    A cell that is no optimizer of MindSpore's may hold one or several.
    """
    whole = core_of(optimizer)
    return [optimizer] if isinstance(whole, OPTIMIZERS) else optimizers_in(whole) or [optimizer]


def core_of(optimizer: nn.Cell) -> nn.Cell:
    """Return the optimizer inside those that stand around it."""
    while isinstance(optimizer, OptimizerWrapper):
        optimizer = optimizer.optimizer
    return optimizer
