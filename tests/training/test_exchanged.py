"""Cells exchanged amid a run: a new head, a head that grows, and what goes along with them."""

from __future__ import annotations

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

import msgrad as mg
from tests.nets.step_nets import Line, Term, X, step_over, weights_of

pytestmark = pytest.mark.usefixtures("mode")


def momentum(parameters: list[Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 1.0, 0.5)


@pytest.mark.parametrize(("keep", "velocity"), [(False, 1.0), (True, 1.5)], ids=["anew", "kept"])
def test_the_momentum_of_an_exchanged_layer_goes_along_where_that_is_asked_for(
    keep: bool, velocity: float
):
    net = Line()
    step = step_over(net, momentum, trainable=["a", "b"], keep_rows=keep)
    step(X)
    net.b = Term([7.0, 8.0], 2.0)
    step(X)
    # velocity 1.5 times the gradient in the second step of a weight that stays
    assert weights_of(net)[0] == [1 - 2.5, 2 - 5.0]
    assert weights_of(net)[1] == [7 - 2 * velocity, 8 - 4 * velocity]


def test_a_head_that_grows_keeps_the_momentum_of_its_rows():
    x, y = Tensor(np.ones((1, 1), np.float32)), Tensor(np.zeros((1, 1), np.float32))
    net = nn.SequentialCell(nn.Dense(1, 1, "ones", has_bias=False))
    loss = nn.MAELoss("sum")  # the gradient is 1 for each output
    step = mg.TrainStep(net, momentum, loss, keep_rows=True).set_train()
    step(x, y)
    net[0] = nn.Dense(1, 3, Tensor(np.full((3, 1), 9, np.float32)), has_bias=False)
    step(x, Tensor(np.zeros((1, 3), np.float32)))
    assert net[0].weight.asnumpy().ravel().tolist() == [9 - 1.5, 9 - 1.0, 9 - 1.0]


def test_each_of_two_heads_that_take_turns_keeps_its_own_momentum():
    net = Line()
    step = step_over(net, momentum, trainable=["a", "b"])
    first, second = net.b, Term([7.0, 8.0], 2.0)
    for head in (first, second, first):
        net.b = head
        step(X)
    assert first.weight.asnumpy().tolist() == [3 - 2 - 3.0, 4 - 4 - 6.0]
    assert second.weight.asnumpy().tolist() == [7 - 2.0, 8 - 4.0]
    assert weights_of(net)[0] == [1 - 1 - 1.5 - 1.75, 2 - 2 - 3 - 3.5]


def test_within_a_stage_an_exchanged_layer_trains_only_where_the_stage_names_it():
    net = Line()
    step = step_over(net, lambda p: nn.SGD(p, 1.0))
    schedule = mg.Schedule(step, [mg.Stage(train="a", steps=2), mg.Stage(train=["a", "b"])])
    for number in range(3):
        schedule.at(step=number)
        if number == 1:
            net.b = Term([7.0, 8.0], 2.0)
        step(X)
        assert step.trainable == (["a.weight"] if number < 2 else ["a.weight", "b.weight"])
    assert weights_of(net)[:2] == [[1 - 3.0, 2 - 6.0], [7 - 2.0, 8 - 4.0]]


@pytest.mark.parametrize("kind", ["rule", "average"])
def test_an_update_over_a_layer_that_was_exchanged_is_refused_before_a_step(kind: str):
    net = Line()
    updates = mg.MovingAverage(net)
    if kind == "rule":
        updates = mg.WeightUpdates(net, {"b": mg.rules.multiply(0.5)})
    step = step_over(net, lambda p: nn.SGD(p, 1.0), trainable=["a", "b"], updates=updates)
    step(X)
    net.b = Term([7.0, 8.0], 2.0)
    before = mg.Snapshot(net)
    with pytest.raises(mg.errors.ArgumentError, match=r"is over b\.weight, whose cell was exch"):
        step(X)
    with pytest.raises(mg.errors.ArgumentError, match=r"is over b\.weight, whose cell was exch"):
        updates()
    assert before.moved() == []
