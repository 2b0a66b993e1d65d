"""Programs in which flag and optimizer disagree, or the optimizer holds the wrong weights."""

from __future__ import annotations

from mindspore import Tensor, nn, ops

import msgrad as mg
from tests.auditing.gallery.data import Net, batch, train_cell
from tests.auditing.gallery.leaking import StoppedByHand


def unfreeze_after_the_optimizer() -> mg.Audit:
    """The optimizer was made while the layer was frozen."""
    net = Net()
    net.fc2.weight.requires_grad = False
    step = train_cell(net, nn.SGD(net.trainable_params(), 0.1))
    net.fc2.weight.requires_grad = True
    return mg.audit(step, *batch())


def layer_replaced_after_the_optimizer() -> mg.Audit:
    """A new head, and an optimizer that holds the old one."""
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    net.head = nn.Dense(4, 2)
    return mg.audit(train_cell(net, optimizer), *batch())


def half_of_the_network_forgotten() -> mg.Audit:
    """Only one part is given to the optimizer."""
    net = Net()
    optimizer = nn.Adam(net.fc1.trainable_params() + net.fc2.trainable_params(), 0.1)
    return mg.audit(train_cell(net, optimizer), *batch())


def frozen_too_late_but_stopped() -> mg.Audit:
    """Nothing moves it yet; the first decay or momentum would."""
    net = StoppedByHand()
    step = train_cell(net, nn.SGD(net.trainable_params(), 0.1))
    net.backbone.weight.requires_grad = False
    net.backbone.bias.requires_grad = False
    return mg.audit(step, *batch())


def optimizer_of_another_network() -> mg.Audit:
    """The network was built again after the optimizer."""
    optimizer = nn.SGD(Net().trainable_params(), 0.1)
    return mg.audit(train_cell(Net(), optimizer), *batch())


class TwoOptimizers(nn.Cell):
    """A train cell with one optimizer for the layers, one for the head."""

    def __init__(self, network: nn.Cell, slow: nn.Cell, fast: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.slow = slow
        self.fast = fast
        self.grad = ops.GradOperation(get_by_list=True)

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self.network(x, y)
        slow = self.grad(self.network, self.slow.parameters)(x, y)
        fast = self.grad(self.network, self.fast.parameters)(x, y)
        return ops.depend(loss, (self.slow(slow), self.fast(fast)))


def weight_in_two_optimizers() -> mg.Audit:
    """The head gets two updates at each step."""
    net = nn.WithLossCell(Net(), nn.MSELoss())
    slow = nn.SGD(net.trainable_params(), 0.01)
    fast = nn.SGD([p for p in net.trainable_params() if "head" in p.name], 0.1)
    return mg.audit(TwoOptimizers(net, slow, fast).set_train(), *batch())


class Tied(nn.Cell):
    """The output layer has the weight of the input layer."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Dense(3, 3, has_bias=False)
        self.leave = nn.Dense(3, 3)
        self.leave.weight = self.enter.weight
        self.head = nn.Dense(3, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(self.leave(ops.tanh(self.enter(x))))


def tied_weight_frozen_by_one_name() -> mg.Audit:
    """Freezing the input layer freezes half of the output layer."""
    net = Tied()
    for parameter in net.enter.get_parameters():
        parameter.requires_grad = False
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())
