"""Programs in which no gradient gets to what is meant to train."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

import msgrad as mg
from tests.auditing.gallery.data import Net, batch, train_cell
from tests.auditing.gallery.leaking import StoppedByHand


def sgd(net: nn.Cell) -> nn.Cell:
    return nn.SGD(net.trainable_params(), 0.1)


def forgotten_stop() -> mg.Audit:
    """A stop left over from an experiment."""
    net = StoppedByHand()
    return mg.audit(train_cell(net, sgd(net)), *batch())


def detached(x: Tensor) -> Tensor:
    return ops.stop_gradient(x)


class StoppedInHelper(nn.Cell):
    """The stop is in a function that construct calls, and a primitive does another one."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Dense(3, 4)
        self.right = nn.Dense(3, 4)
        self.stop = ops.StopGradient()
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(detached(self.left(x)) + self.stop(self.right(x)))


def stop_in_a_helper() -> mg.Audit:
    """Nothing of it can be seen in the class."""
    net = StoppedInHelper()
    return mg.audit(train_cell(net, sgd(net)), *batch())


class Constant(nn.Cell):
    """A layer whose output is declared a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(3, 4)

    @mg.no_grad
    def construct(self, x: Tensor) -> Tensor:
        return self.fc(x)


def layer_without_grad() -> mg.Audit:
    """no_grad was meant for something else."""
    net = nn.SequentialCell(Constant(), nn.Tanh(), nn.Dense(4, 2))
    return mg.audit(train_cell(net, sgd(net)), *batch())


class Unused(nn.Cell):
    """One layer is made and never called; what another one gives is dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(3, 2)
        self.never = nn.Dense(3, 2)
        self.dropped = nn.Dense(2, 2)

    def construct(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        self.dropped(y)
        return y


def layers_that_do_nothing() -> mg.Audit:
    """Both are in the optimizer."""
    net = Unused()
    return mg.audit(train_cell(net, sgd(net)), *batch())


class Hard(nn.Cell):
    """A choice by argmax, and a sign."""

    def __init__(self) -> None:
        super().__init__()
        self.choose = nn.Dense(3, 2)
        self.code = nn.Dense(3, 2)
        self.head = nn.Dense(2, 2)

    def construct(self, x: Tensor) -> Tensor:
        chosen = ops.cast(ops.argmax(self.choose(x), 1), ms.float32)
        return self.head(ops.sign(self.code(x))) * chosen.expand_dims(1)


def operators_without_a_derivative() -> mg.Audit:
    """Neither passes a gradient on."""
    net = Hard()
    return mg.audit(train_cell(net, sgd(net)), *batch())


class Clip(nn.Cell):
    """Its own backward is wrong: it forgets the gradient."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.clamp(x, -5.0, 5.0)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, ...]:
        return (ops.zeros_like(dout),)


def backward_of_ones_own() -> mg.Audit:
    """A bprop that returns zeros."""
    net = nn.SequentialCell(nn.Dense(3, 4), Clip(), nn.Dense(4, 2))
    return mg.audit(train_cell(net, sgd(net)), *batch())


class Rare(nn.Cell):
    """A branch that hardly any input takes."""

    def __init__(self) -> None:
        super().__init__()
        self.usual = nn.Dense(3, 2)
        self.rare = nn.Dense(3, 2)

    def construct(self, x: Tensor) -> Tensor:
        if x.sum() > 1e6:
            return self.rare(x)
        return self.usual(x)


def branch_never_taken() -> mg.Audit:
    """A threshold on another scale than the data."""
    net = Rare()
    return mg.audit(train_cell(net, sgd(net)), *batch())


class Adversarial(nn.Cell):
    """The loss of a generator, through a discriminator."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Dense(3, 4)
        self.discriminator = nn.SequentialCell(nn.Dense(4, 4), nn.Tanh(), nn.Dense(4, 1))

    def construct(self, noise: Tensor) -> Tensor:
        return -self.discriminator(ops.tanh(self.generator(noise))).mean()


def discriminator_stopped_not_frozen() -> mg.Audit:
    """A stop at the discriminator also takes the gradient from the generator."""
    gan = Adversarial()
    mg.stop_gradient(gan, "discriminator")
    optimizer = nn.SGD(gan.generator.trainable_params(), 0.1)
    step = nn.TrainOneStepCell(gan, optimizer).set_train()
    return mg.audit(step, batch()[0], held="discriminator")


def unused_layer_under_a_train_step() -> mg.Audit:
    """TrainStep takes it out of the optimizer; the audit still says that it does not train."""
    step = mg.TrainStep(Unused(), lambda p: nn.AdamWeightDecay(p, 0.1), nn.MSELoss())
    return mg.audit(step.set_train(), *batch())


# --- a path, and no gradient


def batch_of_zeros() -> mg.Audit:
    """Padding only: the first weight gets no gradient from it."""
    net = Net()
    return mg.audit(train_cell(net, sgd(net)), ops.zeros((4, 3)), batch()[1])


class DeadUnits(nn.Cell):
    """The bias of the first layer closes every unit for good."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(3, 4, bias_init=-1000.0)
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(ops.relu(self.fc(x)))


def dead_units() -> mg.Audit:
    """No input opens one."""
    net = DeadUnits()
    return mg.audit(train_cell(net, sgd(net)), *batch())


def zeros_times_zeros() -> mg.Audit:
    """Two layers that both begin at zero keep each other there."""
    net = nn.SequentialCell(
        nn.Dense(3, 4, "zeros", bias_init="zeros"), nn.Dense(4, 2, "zeros", bias_init="zeros")
    )
    return mg.audit(train_cell(net, sgd(net)), *batch())


# --- no number


class Distance(nn.Cell):
    """The derivative of a root is infinite at 0, and infinite times 0 is NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Dense(3, 4)
        self.fc2 = nn.Dense(4, 4, "zeros", bias_init="zeros")
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        y = self.fc2(ops.tanh(self.fc1(x)))
        return self.head(ops.sqrt(y * y))


def root_of_zero() -> mg.Audit:
    """The loss is finite, the gradient of two layers is not."""
    net = Distance()
    return mg.audit(train_cell(net, sgd(net)), *batch())


def broken_checkpoint() -> mg.Audit:
    """One weight came with a NaN."""
    net = Net()
    ops.assign(net.fc2.bias, Tensor(np.array([0.0, np.nan, 0.0, 0.0], np.float32)))
    return mg.audit(train_cell(net, sgd(net)), *batch())


def rate_too_high() -> mg.Audit:
    """All is finite before the steps, nothing is after them."""
    net = nn.SequentialCell(nn.Dense(3, 4), nn.Dense(4, 2))
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 1e20)), *batch())
