"""Networks, steps and oracles for the tests of updates; the graph parser reads them from here."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

X = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 1.0]], np.float32)
Y = np.array([[1.0], [0.0], [2.0]], np.float32)
START = np.array([[0.5, -0.25]], np.float32)
RATE, MOMENTUM = 0.05, 0.9


def linear() -> nn.Dense:
    """One weight of shape (1, 2), no bias."""
    return nn.Dense(2, 1, Tensor(START), has_bias=False)


def make_step(style: str, net: nn.Cell) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a training step in plain MindSpore, in one of the three styles."""
    optimizer = nn.Momentum(net.trainable_params(), RATE, MOMENTUM)
    if style == "cell":
        return nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()

    def forward(x, y):
        return ops.mse_loss(net(x), y)

    gradient = ops.value_and_grad(forward, None, optimizer.parameters)

    def step(x, y):
        loss, grads = gradient(x, y)
        return ops.depend(loss, optimizer(grads))

    return ms.jit(step) if style == "jit" else step


class NumpyRun:
    """The same steps in NumPy."""

    def __init__(self) -> None:
        self.w = START.copy()
        self.velocity = np.zeros_like(START)

    def step(self) -> None:
        gradient = 2 * (X @ self.w.T - Y).T @ X / len(X)
        self.velocity = MOMENTUM * self.velocity + gradient
        self.w = (self.w - RATE * self.velocity).astype(np.float32)


def run_with_change(style: str, net: nn.Cell, change: Callable[[], object]) -> None:
    """Two steps, a change, two steps."""
    step = make_step(style, net)
    for number in range(4):
        if number == 2:
            change()
        step(Tensor(X), Tensor(Y))


class Cubic(nn.Cell):
    """``w³ · x`` with an update before it, which is no part of the function."""

    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor(np.array([1.0], np.float32)), name="w")
        self.__dict__["update"] = None

    def construct(self, x: Tensor) -> Tensor:
        x = ops.depend(x, self.update())
        return (self.w * self.w * self.w * x).sum()


class CubicOfTwice(Cubic):
    """The same with the doubling as a part of the function: what a faulty update would give."""

    def construct(self, x: Tensor) -> Tensor:
        w = 2.0 * self.w
        return (w * w * w * x).sum()


class Slope(nn.Cell):
    """The derivative of a network by its weight."""

    def __init__(self, net: nn.Cell, weight: Parameter) -> None:
        super().__init__()
        self.net = net
        self.weights = ParameterTuple([weight])
        self.gradient = ops.GradOperation(get_by_list=True)

    def construct(self, x: Tensor) -> Tensor:
        return self.gradient(self.net, self.weights)(x)[0].sum()


class Halving(nn.Cell):
    """A rule with a counter: halves the weight, and gives NaN from the second call on."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Parameter(Tensor(0, ms.int32), name="calls", requires_grad=False)

    def construct(self, w: Tensor) -> Tensor:
        factor = ops.where(self.calls < 1, Tensor(0.5, ms.float32), Tensor(np.nan, ms.float32))
        ops.assign_add(self.calls, 1)
        return w * factor


class Failing(Halving):
    """A rule with a counter that gives NaN at once."""

    def construct(self, w: Tensor) -> Tensor:
        ops.assign_add(self.calls, 1)
        return w / 0.0


class Holding(nn.Cell):
    """A rule that holds a layer of the network that it updates."""

    def __init__(self, layer: nn.Cell) -> None:
        super().__init__()
        self.layer = layer

    def construct(self, w: Tensor) -> Tensor:
        return w


class Remember(nn.Cell):
    """A rule with a state for each weight: ``s ← s / 2 + w``, then ``w ← s + step``."""

    def state_of(self, parameter: Parameter, path: str) -> Parameter:
        return Parameter(ops.zeros_like(parameter), name="any")

    def construct(self, w: Tensor, s: Parameter, step: Tensor) -> Tensor:
        new = 0.5 * s + w
        ops.assign(s, new)
        return new + ops.cast(step, ms.float32)


class Method:
    """Ways to write a rule on an object."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def scaled(self, w: Tensor) -> Tensor:
        return w * self.factor

    def __call__(self, w: Tensor) -> Tensor:
        return w * self.factor


def grow(w: Tensor) -> Tensor:
    return w + 1e-3 * w


def shrink(w: Tensor) -> Tensor:
    return 1e-2 * w


def less(w: Tensor) -> Tensor:
    return w - 1e-1 * w


def double(w: Tensor) -> Tensor:
    return 2.0 * w


def by_step(w: Tensor, step: Tensor) -> Tensor:
    return w / ops.cast(step + 1, ms.float32)


def with_default(w: Tensor, factor: float = 3.0) -> Tensor:
    return w * factor


def first_row(w: Tensor) -> Tensor:
    return w[:1]


def to_half(w: Tensor) -> Tensor:
    return ops.cast(w, ms.float16)


def to_nan(w: Tensor) -> Tensor:
    return w * float("nan")


def to_infinity(w: Tensor) -> Tensor:
    return w / 0.0


def turned(w: Tensor) -> Tensor:
    return w.T


def jitter(w: Tensor) -> Tensor:
    return w + ops.standard_normal(w.shape)


def set_first(w: Tensor) -> Tensor:
    w[0, 0] = 7.0
    return w


def assign_half(w: Tensor) -> Tensor:
    ops.assign(w, 0.5 * w)
    return w


def log_of_noise(w: Tensor) -> Tensor:
    return ops.log(ops.standard_normal(w.shape))


def three() -> nn.SequentialCell:
    values = (np.arange(2), np.arange(6) - 2.5, np.arange(3) + 1)
    shapes = ((2, 1), (3, 2), (1, 3))
    return nn.SequentialCell(
        *(
            nn.Dense(s[1], s[0], Tensor(v.reshape(s), ms.float32), "ones")
            for v, s in zip(values, shapes, strict=True)
        )
    )


def values(net: nn.Cell) -> dict[str, np.ndarray]:
    return {p.name: p.asnumpy().copy() for p in net.get_parameters()}


def assert_equal(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(got) == list(expected)
    for name, value in expected.items():
        assert got[name].tobytes() == value.tobytes(), name
