"""The batch of the gallery, and the networks that most of its programs share."""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, nn, ops


def batch() -> tuple[Tensor, Tensor]:
    """Return four rows of three numbers, and two targets for each."""
    x = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
    return Tensor(x), Tensor(np.linspace(-1, 1, 8).reshape(4, 2).astype(np.float32))


class Net(nn.Cell):
    """Two layers and a head; tanh, so that no unit is dead."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Dense(3, 4)
        self.fc2 = nn.Dense(4, 4)
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(ops.tanh(self.fc2(ops.tanh(self.fc1(x)))))


class Normed(nn.Cell):
    """A backbone with a BatchNorm, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.SequentialCell(nn.Dense(3, 4, has_bias=False), nn.BatchNorm1d(4))
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(ops.tanh(self.backbone(x)))


def train_cell(net: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    """Return MindSpore's own train cell with a squared error."""
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()
