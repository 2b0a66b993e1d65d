"""Programs in which something is meant to stay and moves all the same."""

from __future__ import annotations

from mindspore import Tensor, nn, ops

import msgrad as mg
from tests.auditing.gallery.data import Net, Normed, batch, train_cell


def flag_after_the_optimizer() -> mg.Audit:
    """The optimizer holds what was frozen after it was made."""
    net = Net()
    step = train_cell(net, nn.Adam(net.trainable_params(), 0.1, weight_decay=0.1))
    for parameter in net.fc1.get_parameters():
        parameter.requires_grad = False
    return mg.audit(step, *batch())


class StoppedByHand(nn.Cell):
    """The backbone is meant to be frozen by a stop."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Dense(3, 4)
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        features = ops.stop_gradient(self.backbone(x))
        return self.head(ops.tanh(features))


def stop_under_weight_decay() -> mg.Audit:
    """No gradient comes, but weight decay does."""
    net = StoppedByHand()
    optimizer = nn.AdamWeightDecay(net.trainable_params(), 0.1, weight_decay=0.1)
    return mg.audit(train_cell(net, optimizer), *batch())


def stop_under_live_momentum() -> mg.Audit:
    """The momentum of earlier steps moves a layer that is stopped now."""
    net = Net()
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    step = train_cell(net, optimizer)
    for _ in range(2):
        step(*batch())
    mg.stop_gradient(net, "fc1")
    return mg.audit(train_cell(net, optimizer), *batch())


def norm_frozen_by_its_flags() -> mg.Audit:
    """Flags do not hold the statistics of a norm layer."""
    net = Normed()
    for parameter in net.backbone.get_parameters():
        parameter.requires_grad = False
    return mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())


def freeze_of_a_compiled_step() -> mg.Audit:
    """A plain train cell neither notices a freeze, nor lets go of what is frozen."""
    net = Normed()
    step = train_cell(net, nn.SGD(net.trainable_params(), 0.1))
    step(*batch())
    mg.freeze(net, "backbone")
    return mg.audit(step, *batch())


class MaskedGradients(nn.Cell):
    """A train cell of one's own that freezes by zero gradients."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.network.set_grad()
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.factors = tuple(0.0 if "fc1" in p.name else 1.0 for p in self.weights)
        self.grad = ops.GradOperation(get_by_list=True)

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self.network(x, y)
        grads = self.grad(self.network, self.weights)(x, y)
        masked = ()
        for factor, grad in zip(self.factors, grads):  # noqa: B905 (a graph takes no strict)
            masked += (factor * grad,)
        return ops.depend(loss, self.optimizer(masked))


def gradients_masked_under_decay() -> mg.Audit:
    """Zero gradients hold nothing under decoupled weight decay."""
    net = nn.WithLossCell(Net(), nn.MSELoss())
    optimizer = nn.AdamWeightDecay(net.trainable_params(), 0.1, weight_decay=0.1)
    return mg.audit(MaskedGradients(net, optimizer).set_train(), *batch())


def everything_made_trainable() -> mg.Audit:
    """Turning on every flag turns on running statistics, which decay then shrinks."""
    net = Normed()
    for parameter in net.get_parameters():
        parameter.requires_grad = True
    optimizer = nn.SGD(net.trainable_params(), 0.1, weight_decay=0.1)
    return mg.audit(train_cell(net, optimizer), *batch())


def every_flag_after_the_optimizer() -> mg.Audit:
    """Everything is meant to stay; in an eager run without decay it does, and nothing trains."""
    net = Net()
    step = train_cell(net, nn.SGD(net.trainable_params(), 0.1))
    for parameter in net.get_parameters():
        parameter.requires_grad = False
    return mg.audit(step, *batch())
