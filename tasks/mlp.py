"""Three small layers that learn a parabola, and a function for the weights of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor, nn, ops

if TYPE_CHECKING:
    from msgrad.runs import Config

X = np.linspace(-1, 1, 4, dtype=np.float32)[:, None]
Y = X**2


def grow(w: Tensor) -> Tensor:
    """Return the weights a thousandth larger."""
    return w + 1e-3 * w


def shrink(w: Tensor) -> Tensor:
    """Return a hundredth of the weights."""
    return 1e-2 * w


def lessen(w: Tensor) -> Tensor:
    """Return the weights a tenth smaller."""
    return w - 1e-1 * w


class Mlp(nn.Cell):
    """Three layers: one input, two and three hidden units, one output.

    Inputs:
        - **x** (Tensor) - ``(N, 1)``, float32.

    Outputs:
        Tensor, ``(N, 1)``, float32.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Dense(1, 2)
        self.fc2 = nn.Dense(2, 3)
        self.fc3 = nn.Dense(3, 1)

    def construct(self, x: Tensor) -> Tensor:
        """Return the curve at x."""
        return self.fc3(ops.tanh(self.fc2(ops.tanh(self.fc1(x)))))


def network(config: Config) -> Mlp:
    """Return a network with its first weights."""
    return Mlp()


def loss() -> nn.Cell:
    """Return the loss of the curve and the parabola."""
    return nn.MSELoss()


def datasets(config: Config) -> tuple[ds.Dataset, ds.Dataset]:
    """Return the points to train on, in order, and the same to evaluate on."""
    rows = ds.NumpySlicesDataset((X, Y), ["x", "y"], shuffle=False, **config.shard)
    return rows.batch(config.batch_size), ds.NumpySlicesDataset((X, Y), shuffle=False).batch(len(X))


METRICS = {"error": "min"}


def evaluate(net: nn.Cell, dataset: ds.Dataset) -> dict[str, float]:
    """Return the mean squared error."""
    errors = [(net(x) - y).asnumpy() for x, y in dataset.create_tuple_iterator(num_epochs=1)]
    return {"error": float(np.mean(np.square(np.concatenate(errors))))}


def inputs(config: Config) -> tuple[Tensor, Tensor]:
    """Return all points."""
    return Tensor(X), Tensor(Y)
