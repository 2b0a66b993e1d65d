"""Programs whose gradient is not that of one number."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn, ops

import msgrad as mg
from tests.auditing.gallery.data import Net, batch, train_cell


class LossAndOutput(nn.Cell):
    """Returns the loss and the output, as MindSpore's tutorials do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def construct(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        out = self.net(x)
        return ops.square(out - y).mean(), out


class OneLoss(nn.Cell):
    """Differentiates all that the network returns, and returns the loss alone."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.grad = ops.GradOperation(get_by_list=True)

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        loss, _ = self.network(x, y)
        grads = self.grad(self.network, self.optimizer.parameters)(x, y)
        return ops.depend(loss, self.optimizer(grads))


def loss_and_output_in_a_train_cell() -> mg.Audit:
    """MindSpore's own train cell differentiates the sum of both."""
    net = LossAndOutput()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1))
    return mg.audit(step.set_train(), *batch())


def loss_and_output_behind_one_loss() -> mg.Audit:
    """A train cell that shows the loss alone."""
    net = LossAndOutput()
    return mg.audit(OneLoss(net, nn.Adam(net.trainable_params(), 0.1)).set_train(), *batch())


def _function(has_aux: bool) -> mg.Audit:
    net = LossAndOutput()
    optimizer = nn.SGD(net.trainable_params(), 0.1)

    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return net(x, y)

    gradients = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=has_aux)

    def train_step(x: Tensor, y: Tensor) -> Tensor:
        (loss, _), grads = gradients(x, y)
        optimizer(grads)
        return loss

    return mg.audit(train_step, *batch(), net=net.set_train(), optimizer=optimizer)


def loss_and_output_in_a_function() -> mg.Audit:
    """`value_and_grad` without `has_aux`."""
    return _function(False)


def loss_and_output_told_apart() -> mg.Audit:
    """Healthy: `has_aux` says that the loss alone is meant."""
    return _function(True)


def loss_of_each_example() -> mg.Audit:
    """A loss that is not reduced."""
    net = Net()
    loss = nn.WithLossCell(net, nn.MSELoss("none"))
    step = nn.TrainOneStepCell(loss, nn.SGD(net.trainable_params(), 0.1))
    return mg.audit(step.set_train(), *batch())


def gradient_under_a_loss_scale() -> mg.Audit:
    """Healthy: one factor on all gradients is no other loss."""
    net = Net()
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1, loss_scale=8.0)), *batch())
