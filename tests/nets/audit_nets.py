"""Networks and steps for the tests of the audit; the graph parser reads their source."""

from __future__ import annotations

import random
from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

import msgrad as mg


class Layers(nn.Cell):
    """A layer, a norm, dropout and a head."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.fc = nn.Dense(3, 4, has_bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(p=rate)
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(ops.tanh(self.drop(self.norm(self.fc(x)))))


class Scaling(nn.Cell):
    """A train cell whose network is called with more than the cell itself is."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.updater = optimizer
        self.weights = optimizer.parameters
        self.grad = ops.GradOperation(get_by_list=True)

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        twice = 2.0 * y
        loss = self.network(x, y, twice)
        grads = self.grad(self.network, self.weights)(x, y, twice)
        return ops.depend(loss, self.updater(ops.clip_by_global_norm(grads, 0.01)))


class ThreeInputs(nn.Cell):
    """A loss of three inputs; one layer is used behind a stop."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(3, 2)
        self.cut = nn.Dense(3, 2)

    def construct(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return ((self.fc(x) + ops.stop_gradient(self.cut(x)) - y - z) ** 2).sum()


class Buffered(nn.Cell):
    """A buffer that is no Parameter, and a print of the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = mg.PrintWeights(nn.Dense(3, 2), every=100)
        self.register_buffer("shift", Tensor(np.ones(2, np.float32)))

    def construct(self, x: Tensor) -> Tensor:
        return self.fc(x) + self.shift


def squared(net: nn.Cell) -> nn.Cell:
    return nn.WithLossCell(net, nn.MSELoss())


def step_inside_out(net: nn.Cell, optimizer: nn.Cell) -> Callable[..., Tensor]:
    """Return a step that makes its gradient function anew each time, so that nothing can see it."""

    def train_step(x: Tensor, y: Tensor) -> Tensor:
        # draws from both generators of Python, as an augmentation would
        y = y + 0.0 * (random.random() + np.random.rand())

        def forward(x: Tensor, y: Tensor) -> Tensor:
            return ((net(x) - y) ** 2).sum()

        loss, grads = ms.value_and_grad(forward, None, optimizer.parameters)(x, y)
        optimizer(grads)
        return loss

    return train_step
