"""Networks to wrap, wrappers as a user would write them, and what reads their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg


def dense(inputs: int, outputs: int) -> nn.Dense:
    """A dense layer with the same seedless weights every time."""
    values = np.linspace(-1, 1, inputs * outputs, dtype=np.float32).reshape(outputs, inputs)
    return nn.Dense(inputs, outputs, weight_init=Tensor(values), bias_init=0.25)


class Helper(nn.Cell):
    """A layer whose parent uses more than `construct`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor([[1.0, 2.0], [3.0, 4.0]], ms.float32), name="weight")
        self.register_buffer("shift", Tensor([0.5, 0.5], ms.float32))
        self.factor = 3.0
        self.asked: list[bool] = []

    def construct(self, x: Tensor) -> Tensor:
        return ops.matmul(x, self.weight)

    def helper(self, x: Tensor) -> Tensor:
        return x * self.factor + self.shift

    def set_train(self, mode: bool = True) -> nn.Cell:
        self.asked.append(mode)
        return super().set_train(mode)


class Everywhere(nn.Cell):
    """Cells as attributes, in each kind of container, three levels deep; one name is no path."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Helper()
        self.odd = dense(2, 2)
        self.odd.weight.name = "oddly_named"
        self.seq = nn.SequentialCell(dense(2, 3), nn.SequentialCell(nn.SequentialCell(dense(3, 2))))
        self.items = nn.CellList([dense(2, 2), dense(2, 2)])
        self.table = nn.CellDict({"left": dense(2, 2)})
        self.norm = nn.BatchNorm1d(2)
        self.nothing = nn.SequentialCell()

    def construct(self, x: Tensor) -> Tensor:
        x = self.seq(self.odd(self.first(x)))
        for item in self.items:
            x = item(x)
        return self.norm(self.table["left"](x))


class Parent(nn.Cell):
    """A parent that uses a child's methods, weight and settings, and a container as a list."""

    def __init__(self) -> None:
        super().__init__()
        self.child = Helper()
        self.seq = nn.SequentialCell(dense(2, 2), nn.ReLU())

    def construct(self, x: Tensor) -> Tensor:
        x = self.child.helper(x) + self.child.weight + self.child.shift + self.child.factor
        for layer in self.seq:
            x = layer(x)
        return self.seq[0](x) + len(self.seq)


class Parts(nn.Cell):
    """Inputs and outputs of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor([2.0, 3.0], ms.float32), name="weight")

    def construct(self, pair: tuple, table: dict, nothing: Any = None, *, name: str = "a") -> tuple:
        x = pair[0] * self.weight
        y = table["y"] * self.weight
        if nothing is None and name == "b":
            y = y * 2
        return x, {"y": y, "index": pair[1]}, None, [x, 3, name]


class UsesParts(nn.Cell):
    """Calls `Parts` with a tuple, a dict, None and a keyword; reduces what floats."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = Parts()

    def construct(self, x: Tensor, index: Tensor) -> Tensor:
        x, table, nothing, more = self.parts((x, index), {"y": x}, None, name="b")
        if nothing is None and more[1] == 3 and more[2] == "b":
            return x + table["y"] + more[0] + 0 * table["index"]
        return x


class OwnBprop(nn.Cell):
    """Doubles, and says that it multiplied by 42."""

    def construct(self, x: Tensor) -> Tensor:
        return x * 2

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (dout * 42,)


class Mixed(nn.Cell):
    """Returns what floats, integers and booleans."""

    def construct(self, x: Tensor, index: Tensor) -> tuple:
        return x, index, index > 1


class Around(nn.Cell):
    """One cell, so that it has a path."""

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__()
        self.inner = cell

    def construct(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Cube(nn.Cell):
    """The third power, whose second derivative is not constant."""

    def construct(self, x: Tensor) -> Tensor:
        return x * x * x


class Residual(nn.Cell):
    """A branch beside a skip path; with `stop` edited by hand."""

    def __init__(self, stop: bool = False) -> None:
        super().__init__()
        self.stem = dense(2, 2)
        self.branch = dense(2, 2)
        self.stop = stop

    def construct(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        branch = self.branch(x)
        if self.stop:
            branch = ops.stop_gradient(branch)
        return branch + x


class Convolutions(nn.Cell):
    """A small convolutional net; `stop` names the layer behind which it was edited by hand."""

    def __init__(self, stop: str = "") -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 2, pad_mode="valid")
        self.conv2 = nn.Conv2d(2, 2, 2, pad_mode="valid", has_bias=True)
        self.norm = nn.BatchNorm2d(2)
        self.stop = stop

    def construct(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        if self.stop == "conv1":
            x = ops.stop_gradient(x)
        x = self.norm(ops.relu(x))
        if self.stop == "norm":
            x = ops.stop_gradient(x)
        return self.conv2(x).mean()


class Shared(nn.Cell):
    """One cell in two places, one of them a container."""

    def __init__(self) -> None:
        super().__init__()
        self.one = dense(2, 2)
        self.seq = nn.SequentialCell(nn.ReLU(), self.one)
        self.one.update_parameters_name("one.")

    def construct(self, x: Tensor) -> Tensor:
        return self.one(x) + self.seq(x)


class Listed(nn.Cell):
    """A cell that is also held in a plain container."""

    def __init__(self, hold: Any) -> None:
        super().__init__()
        self.inner = Around(dense(2, 2))
        self.free = dense(2, 2)
        self.inner.kept = hold(self.inner.inner)

    def construct(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.free(x)


class ReadsWeight(nn.Cell):
    """A parent that takes the child's weight, and never calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.child = dense(2, 2)

    def construct(self, x: Tensor) -> Tensor:
        return ops.matmul(x, self.child.weight)


class Gated(mg.CellWrapper):
    """A user's wrapper with a parameter, a cell, and a setting of its own."""

    def __init__(self, cell: nn.Cell, factor: float = 2.0) -> None:
        super().__init__(cell)
        self.factor = factor
        self.gate = Parameter(Tensor([0.5, 0.25], ms.float32), name="gate")
        self.adapter = dense(2, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.cell(x) * self.gate * self.factor + self.adapter(x)


class Doubled(mg.CellWrapper):
    """A user's wrapper without any state."""

    def construct(self, x: Tensor) -> Tensor:
        return 2 * self.cell(x)


class Clashing(mg.CellWrapper):
    """A user's wrapper whose parameter has the name of one of the wrapped cell's."""

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__(cell)
        self.weight = Parameter(Tensor([1.0], ms.float32), name="weight")


def cells_of(net: nn.Cell) -> list[tuple[str, nn.Cell]]:
    """Every entry of every `_cells`, and what `SequentialCell` runs, by identity."""
    entries = []
    for path, cell in net.cells_and_names():
        entries += [(f"{path}.{key}", child) for key, child in cell._cells.items()]
        entries += [(f"{path}.cell_list", child) for child in getattr(cell, "cell_list", [])]
    return entries


def three() -> nn.SequentialCell:
    """Two layers with weights, and one without between them."""
    return nn.SequentialCell(dense(2, 2), nn.ReLU(), dense(2, 2))


def bits_of(value: Tensor) -> list[int]:
    """The bits of a tensor's values, as a list that pytest can show."""
    values = np.array(value.asnumpy(), copy=True)
    return values.view(f"u{values.dtype.itemsize}").ravel().tolist()


def gradients(net: nn.Cell, *inputs: Tensor) -> dict[str, list]:
    """The gradients of the sum of the output, of the first input and of each weight."""
    weights = net.trainable_params()
    of_input, of_weights = ms.grad(net, 0, ms.ParameterTuple(weights))(*inputs)
    found = {"input": bits_of(of_input)}
    return found | {p.name: bits_of(g) for p, g in zip(weights, of_weights, strict=True)}


X = Tensor([[0.5, -1.0], [2.0, 0.25]], ms.float32)
KINDS = [
    pytest.param(mg.CellWrapper, id="plain"),
    pytest.param(mg.StopGradient, id="stop"),
    pytest.param(lambda cell: mg.ScaleGradient(cell, scale=0.5, at="input"), id="scale"),
    pytest.param(mg.ReverseGradient, id="reverse"),
    pytest.param(lambda cell: mg.PrintWeights(cell, every=3), id="print"),
]
ALL_PLACES = (
    ("first", "odd", "items.*", "table.left", "norm"),
    ("seq",),
    ("seq.0", "seq.1"),
    ("seq.1.0",),
    ("seq.1.0.0", "odd"),
)


def wrapped_everywhere(wrapper: Callable[[nn.Cell], mg.CellWrapper]) -> Everywhere:
    """Wrap in every kind of container, three levels deep, one cell twice."""
    net = Everywhere()
    for patterns in ALL_PLACES:
        mg.wrap(net, *patterns, wrapper=wrapper)
    return net
