"""A small network trained in three styles, with a HoldOptimizer or with what one does by hand."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common import api
from mindspore.experimental import optim

import msgrad as mg

X = Tensor(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32))
Y = Tensor(np.zeros((4, 2), np.float32))
HELD, ROWS, NAME_OF_ROWS = "0.weight", [0, 3], "0.bias"
Make = Callable[[list[Parameter]], nn.Cell]


def grouped(parameters: list[Parameter]) -> list[dict]:
    first = [p for p in parameters if p.name in ("2.weight", "0.weight")]
    rest = [p for p in parameters if p.name in ("0.bias", "2.bias")]
    return [{"params": first, "lr": 0.05, "weight_decay": 0.1}, {"params": rest}]


OPTIMIZERS = {
    "sgd": lambda p: nn.SGD(p, 0.1, weight_decay=0.1),
    "sgd-momentum": lambda p: nn.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
    "momentum": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.1),
    "nesterov": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.1, use_nesterov=True),
    "adam": lambda p: nn.Adam(p, 0.1, weight_decay=0.1),
    "adamw": lambda p: nn.AdamWeightDecay(p, 0.1, weight_decay=0.1),
    "rmsprop": lambda p: nn.RMSProp(p, 0.1, centered=True, weight_decay=0.1),
    "adagrad": lambda p: nn.Adagrad(p, learning_rate=0.1, weight_decay=0.1),
    "experimental-sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
    "experimental-adam": lambda p: optim.Adam(p, 0.1, weight_decay=0.1),
    "experimental-adamw": lambda p: optim.AdamW(p, 0.1),
    "adam-grouped": lambda p: nn.Adam(grouped(p), 0.1),
    "adamw-grouped": lambda p: optim.AdamW(grouped(p), 0.1),
    "momentum-dynamic": lambda p: nn.Momentum(p, nn.ExponentialDecayLR(0.1, 0.5, 1), 0.9),
    "adam-rate-list": lambda p: nn.Adam(p, [0.1, 0.05, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1]),
}


def network() -> nn.SequentialCell:
    net = nn.SequentialCell(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2))
    rng = np.random.default_rng(3)
    for p in net.get_parameters():
        p.set_data(Tensor(rng.normal(size=p.shape).astype(np.float32)))
    return net


class Cell:
    """A train cell of MindSpore; `compiled` counts its graphs."""

    def __init__(self, loss: nn.Cell, optimizer: nn.Cell) -> None:
        self.step = nn.TrainOneStepCell(loss, optimizer).set_train()

    def __call__(self) -> None:
        self.step(X, Y)

    def compiled(self) -> int:
        return len(self.step.compile_cache)


class Functional:
    """A loop of `value_and_grad` and the optimizer."""

    def __init__(self, loss: nn.Cell, optimizer: nn.Cell) -> None:
        self.optimizer = optimizer
        self.gradient = ms.value_and_grad(loss, None, optimizer.parameters)

    def __call__(self) -> None:
        _, gradients = self.gradient(X, Y)
        self.optimizer(gradients)

    def compiled(self) -> int:
        return len(self.optimizer.compile_cache)


class Jitted(Functional):
    """The same in one graph of `mindspore.jit`."""

    def __init__(self, loss: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(loss, optimizer)

        def step(x, y):
            value, gradients = self.gradient(x, y)
            return ops.depend(value, optimizer(gradients))

        self.before = len(api.ms_compile_cache)
        self.step = ms.jit(step)

    def __call__(self) -> None:
        self.step(X, Y)

    def compiled(self) -> int:
        return len(api.ms_compile_cache) - self.before


class Training:
    """One network in training, and the values of its weights and their optimizer state."""

    def __init__(self, make: Make, style: type, *, hold: bool) -> None:
        self.net = network()
        self.inner = make(self.net.trainable_params())
        self.optimizer = mg.HoldOptimizer(self.inner) if hold else self.inner
        self.step = style(nn.WithLossCell(self.net, nn.MSELoss()), self.optimizer)

    def parameters(self) -> dict[str, Parameter]:
        return {p.name: p for p in [*self.net.get_parameters(), *self.inner.get_parameters()]}

    def values(self) -> dict[str, np.ndarray]:
        return {name: p.asnumpy().copy() for name, p in self.parameters().items()}

    def step_and_put_back(self) -> None:
        """Do a step, and write back by hand what should have been held: the oracle."""
        before = self.values()
        self.step()
        for name, p in self.parameters().items():
            value = p.asnumpy().copy()
            if is_of(HELD, name):
                value = before[name]
            elif is_of(NAME_OF_ROWS, name):
                value[ROWS] = before[name][ROWS]
            ops.assign(p, Tensor(value))


def is_of(weight: str, name: str) -> bool:
    return name == weight or name.endswith("." + weight)


def part(name: str, value: np.ndarray) -> bytes:
    return (value[ROWS] if is_of(NAME_OF_ROWS, name) else value).tobytes()


def assert_held_and_the_rest_equals(
    before: dict[str, np.ndarray], held: Training, plain: Training
) -> None:
    """Check both halves of a step in which `HELD` and some rows are held."""
    after, expected = held.values(), plain.values()
    still = {n for n in after if is_of(HELD, n) or is_of(NAME_OF_ROWS, n)}
    assert {n for n in still if part(n, before[n]) != part(n, after[n])} == set()
    moved = {n for n in ("2.weight", "2.bias", NAME_OF_ROWS) if (before[n] != after[n]).any()}
    assert moved == {"2.weight", "2.bias", NAME_OF_ROWS}
    for name in after:
        # two compiled graphs: a few units in the last place
        np.testing.assert_allclose(after[name], expected[name], rtol=2e-6, atol=1e-7, err_msg=name)


def assert_it_holds(make: Make, style: type) -> None:
    held, plain = Training(make, style, hold=True), Training(make, style, hold=False)
    for _ in range(2):
        held.step()
        plain.step()
    compiled = held.step.compiled()
    assert held.optimizer.hold(HELD) == [HELD]
    assert held.optimizer.hold_rows(NAME_OF_ROWS, ROWS) == ROWS
    for number in range(2):
        if number:  # a write from outside to what is held counts for both
            for training in (held, plain):
                ops.assign(training.parameters()[HELD], Tensor(np.full((4, 3), -0.0, np.float32)))
        before = held.values()
        held.step()
        plain.step_and_put_back()
        assert_held_and_the_rest_equals(before, held, plain)
    held.optimizer.release(HELD)
    held.optimizer.release_rows(NAME_OF_ROWS)
    before = held.values()
    held.step()
    plain.step()
    after, expected = held.values(), plain.values()
    assert (before[HELD] != after[HELD]).any()
    assert (before[NAME_OF_ROWS] != after[NAME_OF_ROWS]).all()
    for name in after:
        np.testing.assert_allclose(after[name], expected[name], rtol=2e-6, atol=1e-7, err_msg=name)
    assert held.step.compiled() == compiled
