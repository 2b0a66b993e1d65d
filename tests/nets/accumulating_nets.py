"""Sums of gradients that lie in objects of the user's own, as in MindSpore's tutorial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops


def _add(total: Parameter, gradient: Tensor) -> Tensor:
    return ops.assign_add(total, gradient)


def _clear(total: Parameter) -> Tensor:
    return ops.assign(total, ops.zeros_like(total))


@ms.jit_class
class InParameters:
    """Sums in Parameters of an object that is no Cell."""

    def __init__(self, optimizer: nn.Cell) -> None:
        self.optimizer = optimizer
        self.counter = Parameter(Tensor(0, ms.int32), name="counter")
        self.sums = optimizer.parameters.clone(prefix="sum", init="zeros")
        self.map = ops.HyperMap()

    def __call__(self, grads: tuple[Tensor, ...]) -> bool:
        self.map(ops.partial(_add), self.sums, grads)
        ops.assign_add(self.counter, Tensor(1, ms.int32))
        if self.counter % 3 == 0:
            self.optimizer(self.sums)
            self.map(ops.partial(_clear), self.sums)
        return True


class InAttributes:
    """Sums in tensors and a number, a list and a dict of an object."""

    def __init__(self, optimizer: nn.Cell) -> None:
        self.optimizer = optimizer
        self.calls = 0
        self.sums: list[Tensor] = []
        self.last: dict[str, Any] = {}

    def __call__(self, grads: tuple[Tensor, ...]) -> bool:
        pairs = zip(self.sums, grads, strict=True) if self.sums else [(0.0, g) for g in grads]
        self.sums[:] = [total + gradient for total, gradient in pairs]
        self.last["gradients"] = grads
        self.calls += 1
        if self.calls % 3 == 0:
            self.optimizer(tuple(self.sums))
            self.sums.clear()
        return True


def step_function(net: nn.Cell, optimizer: nn.Cell, take: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that hands a third of each gradient to an accumulator."""

    def forward(x: Tensor, label: Tensor) -> Tensor:
        return ops.square(net(x) - label).mean() / 3

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)

    def train(x: Tensor, label: Tensor) -> Tensor:
        loss, grads = gradient(x, label)
        take(grads)
        return loss

    return train
