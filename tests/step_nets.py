"""Small networks for the tests of the train step; the graph parser reads this file."""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, nn, ops


class Encoder(nn.Cell):
    """One layer in a cell of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Dense(4, 5)

    def construct(self, x: Tensor) -> Tensor:
        return ops.tanh(self.head(x))


class Trap(nn.Cell):
    """A network that returns its loss, with names that mislead.

    `head.weight` ends `encoder.head.weight`, and MindSpore takes `alphabeta.weight` for the beta
    of a norm, which has no decay.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.alphabeta = nn.Dense(5, 5, has_bias=False)
        self.head = nn.Dense(5, 2, has_bias=False)
        fill(self)

    def construct(self, x: Tensor, label: Tensor) -> Tensor:
        return ops.square(self.head(ops.tanh(self.alphabeta(self.encoder(x)))) - label).mean()


def fill(net: nn.Cell, seed: int = 7) -> None:
    """Give every weight the same values in each network of a kind; before the first step only."""
    rng = np.random.default_rng(seed)
    for parameter in net.get_parameters():
        values = rng.uniform(-0.7, 0.7, parameter.shape).astype(np.float32)
        parameter.set_data(Tensor(values))


def batches(count: int = 3, rows: int = 3, seed: int = 11) -> list[tuple[Tensor, Tensor]]:
    """Return batches of inputs of width 4 and labels of width 2."""
    rng = np.random.default_rng(seed)
    return [
        (
            Tensor(rng.standard_normal((rows, 4)).astype(np.float32)),
            Tensor(rng.standard_normal((rows, 2)).astype(np.float32)),
        )
        for _ in range(count)
    ]
