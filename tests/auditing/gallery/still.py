"""Programs in which a gradient comes and nothing moves, or what moves is not what was meant."""

from __future__ import annotations

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg
from tests.auditing.gallery.data import Net, batch, train_cell


def rate_zero() -> mg.Audit:
    """A rate of 0 for everything."""
    net = Net()
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.0)), *batch())


def rate_zero_in_one_group() -> mg.Audit:
    """A rate of 0 for one layer."""
    net = Net()
    groups = [
        {"params": net.fc1.trainable_params(), "lr": 0.0},
        {"params": net.fc2.trainable_params() + net.head.trainable_params()},
    ]
    return mg.audit(train_cell(net, nn.Momentum(groups, 0.1, 0.9)), *batch())


class Forgetful(nn.Cell):
    """Takes gradients and does not hand them on."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.grad = ops.GradOperation(get_by_list=True)

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self.network(x, y)
        self.grad(self.network, self.optimizer.parameters)(x, y)
        return loss


def optimizer_never_called() -> mg.Audit:
    """The loss is printed and looks fine."""
    net = nn.WithLossCell(Net(), nn.MSELoss())
    step = Forgetful(net, nn.Adam(net.trainable_params(), 0.1))
    return mg.audit(step.set_train(), *batch())


def function_that_forgets_the_optimizer() -> mg.Audit:
    """The same in the functional style."""
    net = Net()
    optimizer = nn.Adam(net.trainable_params(), 0.1)

    def forward(x: Tensor, y: Tensor) -> Tensor:
        return nn.MSELoss()(net(x), y)

    gradients = ms.value_and_grad(forward, None, optimizer.parameters)

    def train_step(x: Tensor, y: Tensor) -> Tensor:
        loss, _ = gradients(x, y)
        return loss

    return mg.audit(train_step, *batch(), net=net, optimizer=optimizer)


def steps_below_half_precision() -> mg.Audit:
    """The step is smaller than the spacing of float16 numbers."""
    net = nn.SequentialCell(nn.Dense(3, 2, "ones", bias_init="ones")).to_float(ms.float16)
    for parameter in net.get_parameters():
        parameter.set_dtype(ms.float16)
    x, y = (ops.cast(v, ms.float16) for v in batch())
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 1e-6)), x, y)


class Restoring(nn.Cell):
    """Writes one weight back after each step."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell, weight: Parameter) -> None:
        super().__init__(auto_prefix=False)
        self.step = nn.TrainOneStepCell(network, optimizer)
        self.weight = weight
        self.first = Tensor(weight.asnumpy().copy())

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self.step(x, y)
        return ops.depend(loss, ops.assign(ops.depend(self.weight, loss), self.first))


def weight_written_back() -> mg.Audit:
    """The train cell undoes what the optimizer did."""
    net = Net()
    loss = nn.WithLossCell(net, nn.MSELoss())
    step = Restoring(loss, nn.SGD(net.trainable_params(), 0.1), net.fc2.weight)
    return mg.audit(step.set_train(), *batch())


# --- the gradient of one weight goes to another


def other_order_in_a_train_cell() -> mg.Audit:
    """Groups put the parameters of the optimizer in another order than the network's."""
    net = Square()
    loss = nn.WithLossCell(net, nn.MSELoss())
    groups = [{"params": [net.second.weight], "lr": 0.01}, {"params": [net.first.weight]}]
    step = InOrderOfTheNetwork(loss, nn.SGD(groups, 0.1))
    x, _ = batch()
    return mg.audit(step.set_train(), x, x)


class Square(nn.Cell):
    """Two layers of one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(3, 3, has_bias=False)
        self.second = nn.Dense(3, 3, has_bias=False)

    def construct(self, x: Tensor) -> Tensor:
        return self.second(ops.tanh(self.first(x)))


class InOrderOfTheNetwork(nn.Cell):
    """Differentiates by the network's parameters and updates by the optimizer's."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.weights = ms.ParameterTuple(network.trainable_params())
        self.grad = ops.GradOperation(get_by_list=True)

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self.network(x, y)
        grads = self.grad(self.network, self.weights)(x, y)
        return ops.depend(loss, self.optimizer(grads))


def other_order_in_a_function() -> mg.Audit:
    """The same in the functional style."""
    net = Square()
    groups = [{"params": [net.second.weight], "lr": 0.01}, {"params": [net.first.weight]}]
    optimizer = nn.SGD(groups, 0.1)

    def forward(x: Tensor, y: Tensor) -> Tensor:
        return nn.MSELoss()(net(x), y)

    gradients = ms.value_and_grad(forward, None, net.trainable_params())

    def train_step(x: Tensor, y: Tensor) -> Tensor:
        loss, grads = gradients(x, y)
        return ops.depend(loss, optimizer(grads))

    x, _ = batch()
    return mg.audit(train_step, x, x, net=net, optimizer=optimizer)


# --- flags that nothing reads


def misspelt_flag() -> mg.Audit:
    """A Parameter takes any attribute."""
    net = Net()
    net.fc1.weight.require_grad = False
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


def flag_of_a_cell() -> mg.Audit:
    """A Cell has such a flag, which freezes nothing."""
    net = Net()
    net.fc1.requires_grad = False
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


def grad_turned_off_for_a_cell() -> mg.Audit:
    """It sounds like a freeze."""
    net = Net()
    net.fc2.set_grad(False)
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


def flag_of_another_framework() -> mg.Audit:
    """Nobody reads it here."""
    net = Net()
    net.fc1.trainable = False
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


# --- where MindSpore does not look


class Scaled(nn.Cell):
    """Scales in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(3, 2)
        self.scales = [Parameter(Tensor([1.0, 1.0]), name="scale")]

    def construct(self, x: Tensor) -> Tensor:
        return self.fc(x) * self.scales[0]


def parameter_in_a_plain_list() -> mg.Audit:
    """The optimizer never hears of it."""
    net = Scaled()
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


class Listed(nn.Cell):
    """Layers in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Dense(3, 3)]
        self.head = nn.Dense(3, 2)

    def construct(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = ops.tanh(layer(x))
        return self.head(x)


def layers_in_a_plain_list() -> mg.Audit:
    """The same with cells."""
    net = Listed()
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())
