"""Networks of every shape in which parameters and cells are selected."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn

import msgrad as mg


def weight(name: str, *shape: int) -> Parameter:
    return Parameter(Tensor(np.ones(shape or (2,), np.float32)), name=name)


class Branchy(nn.Cell):
    """Cells of every kind of container, a tuple of parameters, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = weight("scale")
        self.experts = ParameterTuple([weight("gate"), weight("mix[0]")])
        self.nothing = None
        self.stem = nn.SequentialCell(
            nn.Conv2d(1, 2, 3, has_bias=True), nn.BatchNorm2d(2), nn.ReLU()
        )
        self.blocks = nn.CellList(
            [nn.Dense(2, 2), nn.SequentialCell(nn.Dense(2, 2), nn.Dropout(p=0.5))]
        )
        self.heads = nn.CellDict(
            {"digits": nn.Dense(2, 3), "colour": nn.Dense(2, 2, has_bias=False)}
        )


class Layered(nn.Cell):
    """Twelve layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.CellList(
            [nn.SequentialCell(nn.Dense(2, 2), nn.LayerNorm((2,))) for _ in range(12)]
        )


class Attributes(nn.Cell):
    """Cells under given names."""

    def __init__(self, cells: dict[str, nn.Cell]) -> None:
        super().__init__()
        for name, cell in cells.items():
            setattr(self, name, cell)


class Narrow(nn.Dense):
    """A subclass of a built-in cell."""


class Twice(nn.Cell):
    """One cell in two places, inside another cell and beside it."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.SequentialCell(nn.Dense(2, 2), nn.ReLU())
        self.outer = nn.SequentialCell(shared, Narrow(2, 2))
        self.again = shared


class Gained(mg.CellWrapper):
    """A wrapper with a parameter and a cell of its own."""

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__(cell)
        self.gain = weight("gain")
        self.adapter = nn.Dense(2, 2)


class Biased(mg.CellWrapper):
    """A wrapper with one parameter of its own."""

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__(cell)
        self.shift = weight("shift")


def branchy_wrapped() -> nn.Cell:
    net = Branchy()
    mg.wrap(net, "stem", "blocks.1.0", wrapper=mg.CellWrapper)
    mg.wrap(net, "blocks.1.0", "heads.digits", wrapper=mg.StopGradient)
    return net


def gained() -> nn.Cell:
    net = Layered()
    mg.wrap(net, "layers.3", "layers.4.0", wrapper=Gained)
    return net


def with_loss() -> nn.Cell:
    return nn.WithLossCell(Layered(), nn.MSELoss())


def train_cell() -> nn.Cell:
    loss = with_loss()
    return nn.TrainOneStepCell(loss, nn.Momentum(loss.trainable_params(), 0.1, 0.9))


def by_identity(parameters: Iterable[Parameter]) -> list[int]:
    return [id(parameter) for parameter in parameters]
