"""Networks with something special on the way of the gradient."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class Plain(nn.Cell):
    """Norm in the middle, one layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.b = nn.Dense(4, 2)
        self.unused = nn.Dense(2, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.b(ops.relu(self.norm(self.a(x))))


class Residual(nn.Cell):
    """The branch can be cut, the skip path stays."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Dense(3, 3)
        self.branch = nn.Dense(3, 3)
        self.head = nn.Dense(3, 2)

    def construct(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(x + self.branch(x))


class HandStop(nn.Cell):
    """A stop written by hand behind the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(3, 3)
        self.b = nn.Dense(3, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.b(ops.stop_gradient(self.a(x)))


class Sign(nn.Cell):
    """A sign, whose derivative is zero everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(3, 3)
        self.b = nn.Dense(3, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.b(ops.sign(self.a(x)))


class StraightThrough(nn.Cell):
    """A sign with the gradient of the identity."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(3, 3)
        self.b = nn.Dense(3, 2)

    def construct(self, x: Tensor) -> Tensor:
        y = self.a(x)
        return self.b(y + ops.stop_gradient(ops.sign(y) - y))


class ZeroBprop(nn.Cell):
    """An identity whose own backward is zero."""

    def construct(self, x: Tensor) -> Tensor:
        return x

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, ...]:
        return (ops.zeros_like(x),)


class BehindZeroBprop(nn.Cell):
    """A layer in front of a cell that gives nothing back, and an embedding beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(3, 3)
        self.zero = ZeroBprop()
        self.b = nn.Dense(3, 2)
        self.table = nn.Embedding(5, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.b(self.zero(self.a(x))) + self.table(Tensor([1, 2], ms.int32))


class Gated(nn.Cell):
    """A gate that is zero now; several outputs, some not floating."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(3, 3)
        self.gate = Parameter(Tensor(0.0, ms.float32), name="gate")
        self.b = nn.Dense(3, 2)
        self.chosen = nn.Dense(3, 4)

    def construct(self, x: Tensor) -> tuple:
        return {"loss": self.b(x + self.gate * self.a(x))}, [None, 3, ops.argmax(self.chosen(x))]


class Dead(nn.Cell):
    """A ReLU that no input opens."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(3, 3, bias_init=-1000.0)
        self.b = nn.Dense(3, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.b(ops.relu(self.a(x)))


class Recurrent(nn.Cell):
    """An LSTM and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x.expand_dims(1))
        return self.head(y[:, -1])


class Branching(nn.Cell):
    """A branch chosen by the input; it counts its calls, prints, and moves statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(3, 4)
        self.b = nn.Dense(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Dense(4, 2)
        self.unused = nn.Dense(2, 2)
        self.calls = Parameter(Tensor(0, ms.int32), name="calls", requires_grad=False)

    def construct(self, x: Tensor) -> Tensor:
        ops.assign_add(self.calls, 1)
        ops.print_("seen from the graph", self.calls)
        if x.sum() > 0:  # noqa: SIM108 (a graph takes an if, not a conditional expression)
            y = self.a(x)
        else:
            y = self.b(x)
        return self.head(self.norm(y))


class Rarely(nn.Cell):
    """A branch that next to no input takes."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(3, 2)
        self.rare = nn.Dense(3, 2)

    def construct(self, x: Tensor) -> Tensor:
        if x.sum() > 1e6:
            return self.rare(x)
        return self.a(x)


def batch(rows: int = 2) -> Tensor:
    return Tensor(np.linspace(-1, 2, rows * 3).reshape(rows, 3).astype(np.float32))
