"""Small networks that the tests share; the graph parser reads their source."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class Masked(nn.Cell):
    """A network with a mask and a counter that the model itself made untrainable."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.mask = Parameter(
            Tensor(np.array([1, 0, 1, 1], np.float32)), name="mask", requires_grad=False
        )
        self.count = Parameter(Tensor(np.zeros(1), ms.int32), name="count")
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(ops.relu(self.norm(self.fc(x))) * self.mask)


class Table(nn.Cell):
    """An embedding with one table."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.table = Parameter(
            Tensor(np.linspace(-1, 1, rows * width).reshape(rows, width), ms.float32), name="table"
        )

    def construct(self, index: Tensor) -> Tensor:
        return ops.gather(self.table, index, 0)


class Tied(nn.Cell):
    """A language model in small: the output layer has the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = Table(6, 4)
        self.middle = nn.Dense(4, 4)
        self.output = nn.Dense(4, 6)
        self.output.weight = self.embedding.table

    def construct(self, index: Tensor) -> Tensor:
        return self.output(ops.tanh(self.middle(self.embedding(index))))
