"""Networks that the tests of plans share; the graph parser reads their source."""

from __future__ import annotations

from mindspore import Tensor, nn, ops


class Small(nn.Cell):
    """A backbone with a norm and dropout, a layer of cells, and a head; for names alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.conv2 = nn.Conv2d(2, 2, 3)
        self.drop = nn.Dropout(p=0.5)
        self.blocks = nn.CellList([nn.Dense(4, 4), nn.Dense(4, 4)])
        self.head = nn.Dense(4, 2)


class Staged(nn.Cell):
    """Four layers and a norm, small enough to train in a test."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Dense(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.fc2 = nn.Dense(4, 4)
        self.fc3 = nn.Dense(4, 4)
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        x = self.norm(ops.tanh(self.fc1(x)))
        return self.head(ops.tanh(self.fc3(ops.tanh(self.fc2(x)))))
