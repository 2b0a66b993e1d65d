"""A step notices what changed in its network since its last call."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

import msgrad as mg

X = Tensor(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32))
Y = Tensor(np.zeros((4, 3), np.float32))


def make() -> tuple[nn.SequentialCell, mg.TrainStep]:
    net = nn.SequentialCell(nn.Dense(3, 3), nn.BatchNorm1d(3), nn.Dense(3, 3))
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss(), unreached="allow")
    step.set_train()
    step(X, Y)
    return net, step


def replace_weight(net: nn.SequentialCell) -> str:
    net[2].weight = Parameter(Tensor(np.ones((3, 3), np.float32)), name="2.weight")
    return "2.weight"


def replace_cell(net: nn.SequentialCell) -> str:
    net[2] = nn.Dense(3, 3)
    net[2].set_train()
    return net[2].weight.name


def append_cell(net: nn.SequentialCell) -> str:
    net.append(nn.Dense(3, 3))
    return net[3].weight.name


REPLACED = [
    pytest.param(replace_weight, id="weight"),
    pytest.param(replace_cell, id="cell"),
    pytest.param(append_cell, id="appended"),
]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("change", REPLACED)
def test_what_is_put_into_the_network_later_trains_from_the_next_call_on(change: Callable):
    net, step = make()
    name = change(net)
    before = mg.Snapshot(net)
    step(X, Y)
    assert name in step.trainable
    assert name in before.moved()
    assert "0.weight" in before.moved()


CHANGES = [
    pytest.param(lambda net: mg.freeze(net, "0").undo, id="freeze"),
    pytest.param(
        lambda net: (mg.stop_gradient(net, "0"), lambda: mg.unwrap(net, "0"))[1], id="stop"
    ),
    pytest.param(lambda net: (net[1].set_train(False), net[1].set_train)[1], id="mode"),
    pytest.param(
        lambda net: (
            setattr(net[1], "use_batch_statistics", False),
            lambda: setattr(net[1], "use_batch_statistics", None),
        )[1],
        id="statistics",
    ),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_compiles_once_and_going_back_and_forth_compiles_nothing(change: Callable):
    net, step = make()
    undo = change(net)
    step(X, Y)
    undo()
    step(X, Y)
    undo = change(net)
    step(X, Y)
    assert step.compilations == 2
    undo()


def test_a_flag_set_by_hand_is_noticed_both_ways():
    net, step = make()
    net[0].weight.requires_grad = False
    before = mg.Snapshot(net)
    step(X, Y)
    assert "0.weight" not in before.moved()
    assert "0.bias" in before.moved()
    net[0].weight.requires_grad = True
    step(X, Y)
    assert "0.weight" in before.moved()


def test_a_second_scale_wrapper_has_its_own_factor_in_the_graph():
    net, step = make()
    mg.scale_gradient(net, "2", scale=0.5)
    step(X, Y)
    mg.unwrap(net, "2")
    mg.scale_gradient(net, "2", scale=0.0)
    before = mg.Snapshot(net)
    step(X, Y)
    assert "2.weight" not in before.moved()


def test_a_step_that_is_to_be_differentiated_by_another_train_cell_is_refused():
    net, step = make()
    with pytest.raises(ValueError, match=r"takes the gradient itself.*ms\.Model\(step\) no optim"):
        nn.TrainOneStepCell(step, nn.SGD(net.trainable_params(), 0.1))
