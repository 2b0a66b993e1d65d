"""Small networks for the tests of the train step; the graph parser reads this file."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, amp, nn, ops

import msgrad as mg

X = Tensor([1.0, 2.0], ms.float32)


class Encoder(nn.Cell):
    """One layer in a cell of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Dense(4, 5)

    def construct(self, x: Tensor) -> Tensor:
        return ops.tanh(self.head(x))


class Trap(nn.Cell):
    """A network that returns its loss, with names that mislead.

    `head.weight` ends `encoder.head.weight`, and MindSpore takes `alphabeta.weight` for the beta
    of a norm, which has no decay.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.alphabeta = nn.Dense(5, 5, has_bias=False)
        self.head = nn.Dense(5, 2, has_bias=False)
        fill(self)

    def construct(self, x: Tensor, label: Tensor) -> Tensor:
        return ops.square(self.head(ops.tanh(self.alphabeta(self.encoder(x)))) - label).mean()


class Term(nn.Cell):
    """One term of a loss: the gradient of the weight is the input times a factor."""

    def __init__(self, values: list[float], factor: float) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(values, ms.float32), name="weight")
        self.factor = factor

    def construct(self, x: Tensor) -> Tensor:
        return (self.weight * x).sum() * self.factor


class Line(nn.Cell):
    """A loss whose gradients are known by heart: x for `a`, 2x for `b`, 1000x for `c`."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Term([1.0, 2.0], 1.0)
        self.b = Term([3.0, 4.0], 2.0)
        self.c = Term([5.0, 6.0], 1000.0)

    def construct(self, x: Tensor) -> Tensor:
        return self.a(x) + self.b(x) + self.c(x)


class Spare(nn.Cell):
    """A network with a layer that it never uses, and one that it uses in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(4, 3)
        self.unused = nn.Dense(3, 3)
        self.auxiliary = nn.Dense(3, 2)
        self.last = nn.Dense(3, 2)
        fill(self)

    def construct(self, x: Tensor, label: Tensor) -> Tensor:
        hidden = ops.tanh(self.first(x))
        loss = ops.square(self.last(hidden) - label).mean()
        if self.training:
            loss = loss + ops.square(self.auxiliary(hidden) - label).mean()
        return loss


class TwoInputs(nn.Cell):
    """A network of two inputs, without a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Dense(4, 2)
        self.right = nn.Dense(4, 2)
        fill(self)

    def construct(self, x: Tensor, z: Tensor) -> Tensor:
        return ops.tanh(self.left(x)) * self.right(z)


class TwoInputsAndLoss(nn.Cell):
    """The same with its loss in one Cell, written by hand."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.net = net

    def construct(self, x: Tensor, z: Tensor, label: Tensor) -> Tensor:
        return mean_square(self.net(x, z), label)


def mean_square(out: Tensor, label: Tensor) -> Tensor:
    return ops.square(out - label).mean()


class Pair(nn.Cell):
    """A generator and the discriminator that judges it."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Dense(4, 4)
        self.discriminator = nn.Dense(4, 1)
        fill(self)


class Judged(nn.Cell):
    """One side of the game of a `Pair`: the score of what is made, with one sign or the other."""

    def __init__(self, pair: nn.Cell, sign: float) -> None:
        super().__init__(auto_prefix=False)
        self.pair = pair
        self.sign = sign

    def construct(self, x: Tensor) -> Tensor:
        made = ops.tanh(self.pair.generator(x))
        return ops.tanh(self.pair.discriminator(made)).mean() * self.sign


class Dropped(nn.Cell):
    """A network whose loss in training differs from that in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(4, 8)
        self.dropout = nn.Dropout(p=0.5)
        self.last = nn.Dense(8, 2)
        fill(self)

    def construct(self, x: Tensor, label: Tensor) -> Tensor:
        return ops.square(self.last(self.dropout(self.first(x))) - label).mean()


class Twins(nn.Cell):
    """Two layers whose parameters have the same names."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.first = nn.Dense(4, 3, has_bias=False)
        self.second = nn.Dense(3, 2, has_bias=False)

    def construct(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).mean()


class ScaledStep(nn.TrainOneStepCell):
    """A train cell with a loss scale that leaves out the update where a gradient is not finite."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.scaler = amp.StaticLossScaler(1024.0)
        self.skipped = Parameter(Tensor(0, ms.int32), name="skipped")

    def construct(self, *inputs: Tensor) -> Tensor:
        loss = self.network(*inputs)
        sens = self.scaler.scale(ops.ones_like(loss))
        grads = self.scaler.unscale(self.grad(self.network, self.weights)(*inputs, sens))
        if amp.all_finite(grads):
            loss = ops.depend(loss, self.optimizer(grads))
        else:
            loss = ops.depend(loss, ops.assign_add(self.skipped, Tensor(1, ms.int32)))
        return loss


class AccumulatingStep(nn.TrainOneStepCell):
    """A train cell that updates with the mean of the gradients of every two calls."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.sums = optimizer.parameters.clone(prefix="sum", init="zeros")
        self.calls = Parameter(Tensor(0, ms.int32), name="calls")
        self.each = ops.HyperMap()

    def construct(self, *inputs: Tensor) -> Tensor:
        loss = self.network(*inputs)
        grads = self.grad(self.network, self.weights)(*inputs, ops.ones_like(loss))
        loss = ops.depend(loss, self.each(ops.AssignAdd(), self.sums, grads))
        calls = ops.depend(ops.assign_add(self.calls, Tensor(1, ms.int32)), loss)
        if calls % 2 == 0:
            means = self.each(ops.partial(_half), self.sums)
            loss = ops.depend(loss, self.optimizer(means))
            loss = ops.depend(loss, self.each(ops.partial(_clear), self.sums, means))
        return loss


def _half(value: Tensor) -> Tensor:
    return value * 0.5


def _clear(parameter: Parameter, after: Tensor) -> Tensor:
    return ops.assign(parameter, ops.zeros_like(after))


def fill(net: nn.Cell, seed: int = 7) -> None:
    """Give every weight the same values in each network of a kind; before the first step only."""
    rng = np.random.default_rng(seed)
    for parameter in net.get_parameters():
        values = rng.uniform(-0.7, 0.7, parameter.shape).astype(np.float32)
        parameter.set_data(Tensor(values))


def batches(count: int = 3, rows: int = 3, seed: int = 11) -> list[tuple[Tensor, Tensor]]:
    """Return batches of inputs of width 4 and labels of width 2."""
    rng = np.random.default_rng(seed)
    return [
        (
            Tensor(rng.standard_normal((rows, 4)).astype(np.float32)),
            Tensor(rng.standard_normal((rows, 2)).astype(np.float32)),
        )
        for _ in range(count)
    ]


def values_of(net: nn.Cell) -> dict[str, np.ndarray]:
    """Copy the values of all parameters by name."""
    return {p.name: p.asnumpy().copy() for p in net.get_parameters()}


def moved(net: nn.Cell, before: dict[str, np.ndarray]) -> list[str]:
    """Name the parameters whose bits differ from those copied before."""
    return [n for n, v in values_of(net).items() if v.tobytes() != before[n].tobytes()]


def momentum(parameters: list[Parameter]) -> nn.Cell:
    """Make an optimizer whose numbers are exact in binary."""
    return nn.Momentum(parameters, 0.25, 0.5)


def decaying(parameters: list[Parameter]) -> nn.Cell:
    """Make an optimizer that moves also what has no gradient."""
    return nn.AdamWeightDecay(parameters, 0.05, weight_decay=0.1)


def step_over(net: nn.Cell, optimizer: Callable = momentum, **options: object) -> mg.TrainStep:
    """Make a step that looks for no reach, which saves a compilation."""
    return mg.TrainStep(net, optimizer, **{"unreached": "allow", **options}).set_train()


def weights_of(net: Line) -> list[list[float]]:
    """Return the weights of a `Line`."""
    return [term.weight.asnumpy().tolist() for term in (net.a, net.b, net.c)]


def assert_close(net: nn.Cell, plain: nn.Cell) -> None:
    """Equal but for a few units in the last place (docs/mindspore_facts.md: first launches)."""
    expected = values_of(plain)
    for name, value in values_of(net).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-6, atol=1e-6, err_msg=name)


class Eager(nn.Cell):
    """A network with a statement that no graph can be made of."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Dense(3, 3)

    def construct(self, x: Tensor) -> Tensor:
        try:
            h = self.layer(x)
        finally:
            pass
        return h


class LossAndMore(nn.Cell):
    """A `Dense` layer that returns its loss and more, in one of several forms.

    The second layer is in what stands beside the loss only.
    """

    def __init__(self, form: str) -> None:
        super().__init__()
        self.first = nn.Dense(2, 1, "ones", has_bias=False)
        self.second = nn.Dense(2, 1, "ones", has_bias=False)
        self.form = form

    def construct(self, x: Tensor, label: Tensor) -> object:
        out, other = self.first(x), self.second(x)
        loss = ops.square(out - label).mean()
        if self.form == "tuple":
            return loss, out
        if self.form == "list":
            return [loss, out]
        if self.form == "nested":
            return loss, (out, [other * 2.0, out]), None, 3
        if self.form == "dict":
            return loss, {"out": out, "more": [other]}
        if self.form == "only a dict":
            return {"loss": loss, "out": out}
        return loss


class UnpackingStep(nn.TrainOneStepCell):
    """A train cell that takes a loss and more from its network."""

    def construct(self, *inputs: Tensor) -> object:
        loss, out = self.network(*inputs)
        grads = self.grad_no_sens(self.network, self.weights)(*inputs)
        return ops.depend(loss, self.optimizer(grads)), out * 10.0


class RenamingStep(nn.Cell):
    """A train cell as many are written first: `auto_prefix` stays on, and MindSpore renames all.

    It keeps an average of what it trains, sums of gradients, and a counter.
    """

    def __init__(self, network: nn.Cell, optimizer: nn.Cell, **options: bool) -> None:
        super().__init__(**options)
        self.network = network.set_grad()
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.ema = optimizer.parameters.clone(prefix="ema", init="same")
        self.calls = Parameter(Tensor(0, ms.int32), name="calls")
        self.decay = 0.5
        self.grad = ops.GradOperation(get_by_list=True)
        self.each = ops.HyperMap()

    def construct(self, *inputs: Tensor) -> Tensor:
        loss = self.network(*inputs)
        loss = ops.depend(loss, self.optimizer(self.grad(self.network, self.weights)(*inputs)))
        loss = ops.depend(loss, self.each(ops.partial(_average), self.ema, self.weights))
        return ops.depend(loss, ops.assign_add(self.calls, Tensor(1, ms.int32)))

    def calls_so_far(self) -> int:
        return int(self.calls.asnumpy())


def _average(average: Parameter, weight: Parameter) -> Tensor:
    return ops.assign(average, (average + weight) * 0.5)


class ListedStep(nn.TrainOneStepCell):
    """A train cell that differentiates by a list of its own instead of the optimizer's."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell, weights: list[Parameter]) -> None:
        super().__init__(network, optimizer)
        self.own = ParameterTuple(weights)

    def construct(self, *inputs: Tensor) -> Tensor:
        loss = self.network(*inputs)
        return ops.depend(loss, self.optimizer(self.grad_no_sens(self.network, self.own)(*inputs)))
