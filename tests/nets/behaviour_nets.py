"""Cells that behave otherwise in training, in a file that the graph parser can read."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg


class Shift(nn.Cell):
    """Adds one weight to an input of any shape."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = Parameter(Tensor(np.array([0.5], np.float32)), name="shift")

    def construct(self, x: Tensor) -> Tensor:
        return x + self.shift


class Branching(nn.Cell):
    """A cell of the user's own that asks for the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = Parameter(Tensor(np.array([0.5], np.float32)), name="shift")

    def construct(self, x: Tensor) -> Tensor:
        if self.training:
            return x * 2.0 + self.shift
        return x + self.shift


class FunctionalDropout(nn.Cell):
    """Dropout as a function that is told the mode."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.dropout(x, 0.5, training=self.training)


class GuardedDropout(nn.Cell):
    """Dropout as a function, called in training only."""

    def construct(self, x: Tensor) -> Tensor:
        if self.training:
            x = ops.dropout(x, p=0.5)
        return x


class ConstantDropout(nn.Cell):
    """Dropout as a function that is told always to drop."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 4)

    def construct(self, x: Tensor) -> Tensor:
        return ops.dropout(self.fc(x), training=True)


class FreeDropout(nn.Cell):
    """Dropout as a function with its default, which drops in evaluation too."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 4)

    def construct(self, x: Tensor) -> Tensor:
        return self.dropped(self.fc(x))

    def dropped(self, x: Tensor) -> Tensor:
        return ops.dropout(x, 0.5)


class Recurrent(nn.Cell):
    """Two recurrent layers with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4, num_layers=2, dropout=0.5, batch_first=True)

    def construct(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class Jitted(nn.Cell):
    """A cell that is a graph of its own in PYNATIVE_MODE."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 4)
        self.norm = nn.BatchNorm1d(4)

    @ms.jit
    def construct(self, x: Tensor) -> Tensor:
        return self.norm(self.fc(x))


class TwoPaths(nn.Cell):
    """One dropout cell in a frozen and in a trained part, another in two frozen parts."""

    def __init__(self) -> None:
        super().__init__()
        both, frozen = nn.Dropout(p=0.5), nn.Dropout(p=0.5)
        self.low = nn.SequentialCell(nn.Dense(4, 4), both, frozen)
        self.middle = nn.SequentialCell(nn.Dense(4, 4), frozen)
        self.high = nn.SequentialCell(nn.Dense(4, 4), both)

    def construct(self, x: Tensor) -> Tensor:
        return self.high(self.middle(self.low(x)))


class Doubled(mg.CellWrapper):
    """A wrapper that asks for the mode itself."""

    def construct(self, x: Tensor) -> Tensor:
        y = self.cell(x)
        if self.training:
            y = y * 2.0
        return y


class BasicBlock(nn.Cell):
    """The block of ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, pad_mode="pad", padding=1)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, pad_mode="pad", padding=1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Cell = nn.SequentialCell()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.SequentialCell(
                nn.Conv2d(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )
        self.drop = nn.Dropout(p=0.2)

    def construct(self, x: Tensor) -> Tensor:
        out = ops.relu(self.bn1(self.conv1(x)))
        out = self.drop(self.bn2(self.conv2(out)))
        return ops.relu(out + self.shortcut(x))


class ResNet(nn.Cell):
    """ResNet-18 with few channels: a stem, four stages of two blocks, a classifier."""

    def __init__(self, width: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, pad_mode="pad", padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = self._stage(width, width, 1)
        self.layer2 = self._stage(width, 2 * width, 2)
        self.layer3 = self._stage(2 * width, 4 * width, 2)
        self.layer4 = self._stage(4 * width, 8 * width, 2)
        self.drop = nn.Dropout(p=0.2)
        self.fc = nn.Dense(8 * width, classes)

    @staticmethod
    def _stage(inputs: int, outputs: int, stride: int) -> nn.SequentialCell:
        first = BasicBlock(inputs, outputs, stride)
        return nn.SequentialCell(first, BasicBlock(outputs, outputs, 1))

    def construct(self, x: Tensor) -> Tensor:
        out = self.layer4(self.features(x))
        return self.fc(self.drop(ops.mean(out, (2, 3))))

    def features(self, x: Tensor) -> Tensor:
        """The output of the first three stages."""
        out = ops.relu(self.bn1(self.conv1(x)))
        return self.layer3(self.layer2(self.layer1(out)))


class Features(nn.Cell):
    """The first three stages alone; a graph of its own each time one is made."""

    def __init__(self, net: ResNet) -> None:
        super().__init__(auto_prefix=False)
        self.net = net

    def construct(self, x: Tensor) -> Tensor:
        return self.net.features(x)


class Gained(mg.CellWrapper):
    """A wrapper with a weight of its own."""

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__(cell)
        self.gain = Parameter(Tensor(np.array([1.0], np.float32)), name="gain")

    def construct(self, x: Tensor) -> Tensor:
        return self.cell(x) * self.gain


class Containers(nn.Cell):
    """Weights in a tuple, cells in each kind of container, one cell at two paths."""

    def __init__(self) -> None:
        super().__init__()
        ones = [Tensor(np.ones(2, np.float32)) for _ in range(2)]
        self.several = ms.ParameterTuple([Parameter(t, name=f"w{n}") for n, t in enumerate(ones)])
        self.items = nn.CellList([nn.Dense(2, 2), nn.BatchNorm1d(2)])
        self.table = nn.CellDict({"left": nn.Dense(2, 2)})
        self.again = self.items[1]
        self.nothing: nn.Cell | None = None


# --- how to look at them

Make = Callable[[], nn.Cell]


def network(make: Make) -> nn.SequentialCell:
    """A part with the cell in it, to be frozen as `"0"`, and a part to be trained."""
    return nn.SequentialCell(nn.SequentialCell(Shift(), make()), Shift())


def data(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(1.0, 2.0, shape).astype(np.float32))


def bits(net: nn.Cell) -> dict[str, bytes]:
    return {p.name: p.asnumpy().tobytes() for p in net.get_parameters()}


def moved(net: nn.Cell, before: dict[str, bytes]) -> set[str]:
    return {name for name, value in bits(net).items() if value != before[name]}


def modes(net: nn.Cell) -> list[object]:
    """The mode of every cell, and what its norms are told about statistics."""
    cells = [cell for _, cell in net.cells_and_names()]
    return [(c.training, c.__dict__.get("use_batch_statistics")) for c in cells]


def equal(a: Tensor, b: Tensor) -> bool:
    return a.asnumpy().tobytes() == b.asnumpy().tobytes()


def sgd(parameters: list[Parameter]) -> nn.Cell:
    return nn.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.1)


def training_step(net: nn.Cell) -> mg.TrainStep:
    step = mg.TrainStep(net, sgd, nn.MSELoss(), unreached="allow")
    step.set_train()
    return step


def both() -> nn.SequentialCell:
    """A part with a norm, and a part with dropout."""
    return nn.SequentialCell(
        nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4)),
        nn.SequentialCell(nn.Dense(4, 4), nn.Dropout(p=0.5)),
    )


def adapts(net: nn.Cell) -> bool:
    before = bits(net)
    net(data((6, 4)))
    return bool(moved(net, before))


def drops(net: nn.SequentialCell) -> bool:
    x = data((6, 4))
    return not equal(net[1](x), net[1][0](x))
