"""The same things done right: the audit has nothing to say."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dataset as ds
from mindspore.experimental import optim

import msgrad as mg
from tests.auditing.gallery.cut import Adversarial, Unused
from tests.auditing.gallery.data import Net, Normed, batch, train_cell
from tests.auditing.gallery.leaking import StoppedByHand
from tests.auditing.gallery.outside import Tied, TwoOptimizers
from tests.auditing.gallery.still import Square


def plain_training() -> mg.Audit:
    """Every weight trains, statistics adapt."""
    net = Normed()
    return mg.audit(train_cell(net, nn.Adam(net.trainable_params(), 0.1)), *batch())


def flag_before_the_optimizer() -> mg.Audit:
    """Twin of flag_after_the_optimizer."""
    net = Net()
    for parameter in net.fc1.get_parameters():
        parameter.requires_grad = False
    step = train_cell(net, nn.Adam(net.trainable_params(), 0.1, weight_decay=0.1))
    return mg.audit(step, *batch())


def freeze_with_a_train_step() -> mg.Audit:
    """Twin of freeze_of_a_compiled_step and norm_frozen_by_its_flags."""
    net = Normed()
    mg.freeze(net, "backbone")
    step = mg.TrainStep(
        net, lambda p: nn.AdamWeightDecay(p, 0.1, weight_decay=0.1), nn.MSELoss()
    ).set_train()
    step(*batch())
    return mg.audit(step, *batch())


def adapting_statistics() -> mg.Audit:
    """Weights frozen, statistics adapting, on demand."""
    net = Normed()
    mg.freeze(net, "backbone", statistics=False)
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss()).set_train()
    return mg.audit(step, *batch())


def stop_with_a_train_step() -> mg.Audit:
    """Twin of stop_under_weight_decay: a stop of msgrad's own takes out what it cuts off."""
    net = Net()
    mg.stop_gradient(net, "fc2")
    step = mg.TrainStep(
        net, lambda p: nn.AdamWeightDecay(p, 0.1, weight_decay=0.1), nn.MSELoss()
    ).set_train()
    return mg.audit(step, *batch())


def stop_and_flag() -> mg.Audit:
    """Twin of forgotten_stop and frozen_too_late_but_stopped."""
    net = StoppedByHand()
    for parameter in net.backbone.get_parameters():
        parameter.requires_grad = False
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


class Residual(nn.Cell):
    """A branch that may be stopped, and a way around it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Dense(3, 3)
        self.branch = nn.SequentialCell(nn.Dense(3, 3), nn.Tanh())
        self.head = nn.Dense(3, 2)

    def construct(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(x + self.branch(x))


def stop_on_a_residual_branch() -> mg.Audit:
    """The skip path still carries a gradient to what is in front."""
    net = Residual()
    mg.stop_gradient(net, "branch", at="input")
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


class StraightThrough(nn.Cell):
    """A sign with the gradient of the identity."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Dense(3, 2)
        self.head = nn.Dense(2, 2)

    def construct(self, x: Tensor) -> Tensor:
        code = self.code(x)
        return self.head(code + ops.stop_gradient(ops.sign(code) - code))


def straight_through() -> mg.Audit:
    """Twin of operators_without_a_derivative."""
    net = StraightThrough()
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


def discriminator_frozen() -> mg.Audit:
    """Twin of discriminator_stopped_not_frozen: a freeze passes the gradient on."""
    gan = Adversarial()
    mg.freeze(gan, "discriminator")
    step = mg.TrainStep(gan, lambda p: nn.AdamWeightDecay(p, 0.1, weight_decay=0.1))
    return mg.audit(step.set_train(), batch()[0])


def one_half_of_a_gan() -> mg.Audit:
    """Two steps on one network: each leaves the other's weights alone."""
    step = mg.TrainStep(Adversarial(), lambda p: nn.SGD(p, 0.1), trainable="generator")
    return mg.audit(step.set_train(), batch()[0])


def one_half_of_a_gan_by_hand() -> mg.Audit:
    """The same with MindSpore's cell; held= says what nothing else does."""
    gan = Adversarial()
    step = nn.TrainOneStepCell(gan, nn.SGD(gan.generator.trainable_params(), 0.1)).set_train()
    return mg.audit(step, batch()[0], held="discriminator")


def unused_layer_frozen() -> mg.Audit:
    """Twin of layers_that_do_nothing."""
    net = Unused()
    mg.freeze(net, "never", "dropped")
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss()).set_train()
    return mg.audit(step, *batch())


class LowRank(nn.Cell):
    """A frozen layer and an update of low rank, one factor of which begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Dense(3, 2)
        self.down = nn.Dense(3, 1, has_bias=False)
        self.up = nn.Dense(1, 2, "zeros", has_bias=False)

    def construct(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def low_rank_update() -> mg.Audit:
    """Twin of zeros_times_zeros: the first step opens the way for the second."""
    net = LowRank()
    mg.freeze(net, "base")
    step = mg.TrainStep(net, lambda p: nn.Adam(p, 0.1), nn.MSELoss()).set_train()
    return mg.audit(step, *batch())


def tied_weight_frozen_by_both_names() -> mg.Audit:
    """Twin of tied_weight_frozen_by_one_name."""
    net = Tied()
    mg.freeze(net, "enter", "leave")
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss()).set_train()
    return mg.audit(step, *batch())


def tied_weight_trained() -> mg.Audit:
    """Both uses count."""
    net = Tied()
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


def groups_in_a_function() -> mg.Audit:
    """Twin of other_order_in_a_function."""
    net = Square()
    groups = [{"params": [net.second.weight], "lr": 0.01}, {"params": [net.first.weight]}]
    optimizer = nn.SGD(groups, 0.1)

    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        out = net(x)
        return nn.MSELoss()(out, y), out

    gradients = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)

    @ms.jit
    def train_step(x: Tensor, y: Tensor) -> Tensor:
        (loss, _), grads = gradients(x, y)
        return ops.depend(loss, optimizer(grads))

    x, _ = batch()
    return mg.audit(train_step, x, x, net=net, optimizer=optimizer)


def experimental_optimizer_in_a_function() -> mg.Audit:
    """A loop as in the tutorials, with an optimizer of mindspore.experimental."""
    net = Net()
    optimizer = optim.AdamW(net.trainable_params(), 0.1)

    def forward(x: Tensor, y: Tensor) -> Tensor:
        return nn.MSELoss()(net(x), y)

    gradients = ms.value_and_grad(forward, None, optimizer.parameters)

    def train_step(x: Tensor, y: Tensor) -> Tensor:
        loss, grads = gradients(x, y)
        optimizer(grads)
        return loss

    return mg.audit(train_step, *batch(), net=net, optimizer=optimizer)


def model_with_a_dataset() -> mg.Audit:
    """What Model.train would do in its first steps."""
    net = Normed()
    x, y = (v.asnumpy() for v in batch())
    data = ds.NumpySlicesDataset({"x": np.tile(x, (3, 1)), "y": np.tile(y, (3, 1))}, shuffle=True)
    model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    return mg.audit(model, data.batch(4))


def two_optimizers() -> mg.Audit:
    """Twin of weight_in_two_optimizers."""
    net = nn.WithLossCell(Net(), nn.MSELoss())
    slow = nn.SGD([p for p in net.trainable_params() if "head" not in p.name], 0.01)
    fast = nn.SGD([p for p in net.trainable_params() if "head" in p.name], 0.1)
    return mg.audit(TwoOptimizers(net, slow, fast).set_train(), *batch())


class Accumulating(nn.Cell):
    """Sums the gradients of two calls before it calls the optimizer."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.forward = network
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.sums = self.weights.clone(prefix="sum", init="zeros")
        self.calls = Parameter(Tensor(0, ms.int32), name="calls", requires_grad=False)
        self.grad = ops.GradOperation(get_by_list=True)
        self.map = ops.HyperMap()

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self.forward(x, y)
        grads = self.grad(self.forward, self.weights)(x, y)
        loss = ops.depend(loss, self.map(ops.assign_add, self.sums, grads))
        ops.assign_add(self.calls, 1)
        if self.calls % 2 == 0:
            loss = ops.depend(loss, self.optimizer(self.sums))
            loss = ops.depend(loss, self.map(self.clear, self.sums))
        return loss

    def clear(self, total: Tensor) -> Tensor:
        return ops.assign(total, ops.zeros_like(total))


def accumulated_gradients() -> mg.Audit:
    """Twin of optimizer_never_called: it is called at every second step."""
    net = nn.WithLossCell(Net(), nn.MSELoss())
    step = Accumulating(net, nn.SGD(net.trainable_params(), 0.1))
    return mg.audit(step.set_train(), *batch())


class Averaging(nn.Cell):
    """Keeps a count of its calls and an average of its outputs, which no optimizer moves."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(3, 2)
        self.calls = Parameter(Tensor(0, ms.int32), name="calls", requires_grad=False)
        self.centre = Parameter(ops.zeros((2,)), name="centre", requires_grad=False)

    def construct(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        ops.assign_add(self.calls, 1)
        mean = ops.stop_gradient(y).mean(0)
        centre = ops.depend(self.centre, ops.assign(self.centre, 0.9 * self.centre + 0.1 * mean))
        return y - centre


def buffers_that_the_model_moves() -> mg.Audit:
    """Not an optimizer's doing, and meant."""
    net = Averaging()
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


class Distilled(nn.Cell):
    """A frozen teacher in a list, where MindSpore does not look, on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Dense(3, 2)
        teacher = nn.Dense(3, 2)
        for parameter in teacher.get_parameters():
            parameter.name = f"teacher.{parameter.name}"
            parameter.requires_grad = False
        self.teacher = [teacher]

    def construct(self, x: Tensor) -> Tensor:
        return self.student(x) - self.teacher[0](x)


def teacher_in_a_list() -> mg.Audit:
    """Twin of layers_in_a_plain_list."""
    net = Distilled()
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


def updates_of_ones_own() -> mg.Audit:
    """A change of a trained weight after each step."""
    step = mg.TrainStep(
        Net(),
        lambda p: nn.SGD(p, 0.1),
        nn.MSELoss(),
        updates={"head.weight": mg.rules.multiply(0.99)},
    )
    return mg.audit(step.set_train(), *batch())


def held_by_the_optimizer() -> mg.Audit:
    """A hold at run time."""
    net = Net()
    optimizer = mg.HoldOptimizer(nn.Adam(net.trainable_params(), 0.1, weight_decay=0.1))
    optimizer.hold("fc1")
    return mg.audit(train_cell(net, optimizer), *batch())


def flags_of_cells_without_weights() -> mg.Audit:
    """A flag on a cell whose weights are frozen anyway says nothing wrong."""
    net = Net()
    net.fc1.set_grad(False)
    mg.freeze(net, "fc1")
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss()).set_train()
    return mg.audit(step, *batch())


def schedule_with_warm_up() -> mg.Audit:
    """Twin of rate_zero: the first of three rates is 0."""
    net = Net()
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), [0.0, 0.1, 0.1])), *batch())


class Recurrent(nn.Cell):
    """An LSTM and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x.reshape((2, 2, 3)))
        return self.head(y.reshape((4, 4)))


def recurrent_network() -> mg.Audit:
    """Weights that a kernel reads all at once."""
    net = Recurrent()
    return mg.audit(train_cell(net, nn.Adam(net.trainable_params(), 0.1)), *batch())
