"""Learning rates of a TrainStep: those that a list, a schedule, a callback or a user gives."""

from __future__ import annotations

import mindspore as ms
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.experimental import optim

import msgrad as mg
from tests.nets.step_nets import Line, X, step_over, weights_of

pytestmark = pytest.mark.usefixtures("mode")


def test_a_list_of_rates_goes_on_and_the_rate_reported_is_the_rate_used():
    net = Line()
    rates = [0.5, 0.25, 0.125, 0.0625]
    step = step_over(net, lambda p: nn.SGD(p, rates), trainable=["a", "b"])
    reported = []
    for number in range(4):
        (mg.freeze if number == 1 else mg.unfreeze)(net, "b")
        assert ("b.weight" in step.trainable) == (number != 1)
        reported.append(float(step.optimizer.get_lr().asnumpy()))
        before = weights_of(net)[0][0]
        step(X)
        assert before - weights_of(net)[0][0] == reported[-1]
    assert reported == rates
    assert weights_of(net)[1][0] == 3 - 2 * (0.5 + 0.125 + 0.0625)


def test_rates_of_groups_stay_with_their_weights_when_a_group_before_them_vanishes():
    def grouped(parameters: list[Parameter]) -> nn.Cell:
        schedule = nn.ExponentialDecayLR(0.5, 0.5, 1)
        rates = {"a": 0.25, "b": schedule, "c": 0.125}
        return nn.SGD([{"params": [p], "lr": rates[p.name[0]]} for p in parameters], 1.0)

    net = Line()
    step = step_over(net, grouped)
    step(X)
    mg.freeze(net, "a")
    step(X)
    mg.unfreeze(net)
    step(X)
    assert weights_of(net)[0] == [1 - 2 * 0.25, 2 - 4 * 0.25]
    assert weights_of(net)[1] == [3 - 2 * (0.5 + 0.25 + 0.125), 4 - 4 * (0.5 + 0.25 + 0.125)]
    assert weights_of(net)[2] == [5 - 3 * 125, 6 - 3 * 250]


def set_rate(step: mg.TrainStep, value: float) -> None:
    ops.assign(step.optimizer.learning_rate, Tensor(value, ms.float32))


def test_a_rate_set_while_training_goes_along_there_and_back():
    net = Line()
    step = step_over(net, lambda p: nn.SGD(p, 0.5), trainable=["a", "b"])
    step(X)
    set_rate(step, 0.25)
    mg.freeze(net, "b")
    step(X)
    set_rate(step, 0.5)  # where it began
    mg.unfreeze(net)
    step(X)
    assert weights_of(net)[:2] == [[1 - 1.25, 2 - 2.5], [3 - 2.0, 4 - 4.0]]


def test_a_rate_that_nobody_set_stays_that_of_its_stage():
    net = Line()
    step = step_over(net, lambda p: nn.SGD(p, 0.5 / len(p)), trainable=["a", "b"])
    step(X)
    mg.freeze(net, "b")
    step(X)
    mg.unfreeze(net)
    step(X)
    assert weights_of(net)[0] == [1 - 0.25 - 0.5 - 0.25, 2 - 0.5 - 1.0 - 0.5]


def test_a_rate_set_before_a_group_was_frozen_is_there_when_it_is_released_into_a_new_stage():
    def grouped(parameters: list[Parameter]) -> nn.Cell:
        return optim.SGD([{"params": [p], "lr": 0.5} for p in parameters], 1.0)

    net = Line()
    mg.freeze(net, "c")
    step = step_over(net, grouped)
    step(X)
    ops.assign(step.optimizer.param_groups[1]["lr"], Tensor(0.25, ms.float32))
    mg.freeze(net, "b")
    step(X)
    mg.unfreeze(net)
    step(X)
    assert weights_of(net)[0] == [1 - 1.5, 2 - 3.0]
    assert weights_of(net)[1] == [3 - 2 * 0.5 - 2 * 0.25, 4 - 4 * 0.5 - 4 * 0.25]


def test_a_scheduler_made_for_the_first_optimizer_drives_those_of_later_stages():
    net = Line()
    mg.freeze(net, "a", "c")  # the first layer joins later, at the head of the list
    step = step_over(net, lambda p: optim.SGD(p, 0.5))
    scheduler = optim.lr_scheduler.StepLR(step.optimizer, step_size=1, gamma=0.5)
    step(X)
    scheduler.step()
    mg.unfreeze(net, "a")
    step(X)
    scheduler.step()
    step(X)
    mg.freeze(net, "a")
    scheduler.step()
    step(X)
    assert weights_of(net)[0] == [1 - 0.25 - 0.125, 2 - 0.5 - 0.25]
    assert weights_of(net)[1] == [3 - 2 * (0.5 + 0.25 + 0.125 + 0.0625), 4 - 4 * 0.9375]
