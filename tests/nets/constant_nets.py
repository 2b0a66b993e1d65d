"""Networks that use constants made with `no_grad`, with loss and gradients found by hand."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg


@mg.no_grad
def squared(x: Tensor) -> Tensor:
    return x * x


@mg.no_grad
def parts(x: Tensor, *, k: float = 1.0) -> dict:
    return {"a": x * k, "b": (x, 1, None)}


@mg.no_grad
def both(x: Tensor) -> tuple:
    return 2.0 * x, [3.0 * x]


class Base(nn.Cell):
    """A weight of 2; the input is 3."""

    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor(np.array([2.0], np.float32)), name="w")
        self.other = Parameter(Tensor(np.array([5.0], np.float32)), name="other")


class Function(Base):
    """(w x)² held · w x: 36 · 2 · 3; dx 36 · 2; dw 36 · 3."""

    expected = (216.0, 72.0, 108.0, 0.0)

    def construct(self, x: Tensor) -> Tensor:
        return (squared(x * self.w) * self.w * x).sum()


class Nested(Base):
    """A dict with a tuple in it: 5 w x · w x held, times w: 5 · 6 · 6 · 2; dw 5 · 6 · 6."""

    expected = (360.0, 0.0, 180.0, 0.0)

    def construct(self, x: Tensor) -> Tensor:
        found = parts(x * self.w, k=5.0)
        return (found["a"] * found["b"][0] * self.w).sum()


class Several(Base):
    """A tuple with a list in it: 2 w · 3 w held, times w: 4 · 6 · 2; dw 4 · 6."""

    expected = (48.0, 0.0, 24.0, 0.0)

    def construct(self, x: Tensor) -> Tensor:
        first, second = both(self.w)
        return (first * second[0] * self.w).sum()


class Method(Base):
    """A method that uses a parameter: x · other held, times w: 3 · 5 · 2; dw 15."""

    expected = (30.0, 0.0, 15.0, 0.0)

    @mg.no_grad
    def held(self, x: Tensor) -> Tensor:
        return x * self.other

    def construct(self, x: Tensor) -> Tensor:
        return (self.held(x) * self.w).sum()


class Bound(Method):
    """The same through a bound method."""

    def __init__(self) -> None:
        super().__init__()
        self.constant = mg.no_grad(self.plain)

    def plain(self, x: Tensor) -> Tensor:
        return x * self.other

    def construct(self, x: Tensor) -> Tensor:
        return (self.constant(x) * self.w).sum()


class Layer(nn.Cell):
    """A cell whose whole result is constant."""

    def __init__(self) -> None:
        super().__init__()
        self.other = Parameter(Tensor(np.array([5.0], np.float32)), name="other")

    @mg.no_grad
    def construct(self, x: Tensor) -> Tensor:
        return x * self.other


class Construct(nn.Cell):
    """w x · other held, times w: 2 · 3 · 5 · 2; dw 30."""

    expected = (60.0, 0.0, 30.0, 0.0)

    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor(np.array([2.0], np.float32)), name="w")
        self.layer = Layer()

    def construct(self, x: Tensor) -> Tensor:
        return (self.layer(x * self.w) * self.w).sum()


class Given(Construct):
    """A Cell given to the decorator: the same."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Dense(1, 1, Tensor(np.array([[5.0]], np.float32)), has_bias=False)
        self.constant = mg.no_grad(self.layer)

    def construct(self, x: Tensor) -> Tensor:
        return (self.constant((x * self.w).reshape(1, 1)) * self.w).sum()


class Assigning(Base):
    """What the function assigns is assigned: other becomes x; x held, times w: 3 · 2; dw 3."""

    expected = (6.0, 0.0, 3.0, 0.0)

    @mg.no_grad
    def store(self, x: Tensor) -> Tensor:
        ops.assign(self.other, x)
        return x

    def construct(self, x: Tensor) -> Tensor:
        return (self.store(x) * self.w).sum()


class Cube(nn.Cell):
    """x² held, times x²: first derivative 2 x³, second 2 x² where the held part is constant."""

    def construct(self, x: Tensor) -> Tensor:
        return squared(x) * x * x


NETS = [Function, Nested, Several, Method, Bound, Construct, Given, Assigning]
INPUT = Tensor(np.array([3.0], np.float32))


def gradients(net: nn.Cell) -> tuple[float, ...]:
    """Loss, and the gradients of the input, of `w`, and of the other parameter."""
    weights = ms.ParameterTuple(list(net.trainable_params()))
    loss, (dx, dw) = ops.value_and_grad(net, 0, weights)(INPUT)
    return tuple(float(v.asnumpy().sum()) for v in (loss, dx, *dw))
