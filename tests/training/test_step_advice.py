"""What a step says to somebody who uses it in a way that cannot be meant."""

from __future__ import annotations

import logging

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

import msgrad as mg
from tests.nets.step_nets import Eager

X = Tensor(np.ones((2, 3), np.float32))


def sgd(parameters: list[Parameter]) -> nn.Cell:
    return nn.SGD(parameters, 0.1)


def make_net() -> nn.SequentialCell:
    return nn.SequentialCell(nn.Dense(3, 3), nn.Dense(3, 3))


def test_a_loss_in_the_place_of_the_optimizer_is_told_the_order():
    with pytest.raises(TypeError, match=r"MSELoss, no optimizer; the order is TrainStep\(network"):
        mg.TrainStep(make_net(), nn.MSELoss(), sgd)  # pyright: ignore[reportArgumentType]


def test_a_class_as_loss_is_told_to_be_an_instance():
    with pytest.raises(TypeError, match=r"loss_fn MSELoss is a class; give an instance"):
        mg.TrainStep(make_net(), sgd, nn.MSELoss)


def test_a_call_without_a_batch_is_refused():
    with pytest.raises(ValueError, match=r"step got no inputs; call it with a batch"):
        mg.TrainStep(make_net(), sgd, nn.MSELoss())()


def test_a_network_without_a_loss_is_named_once(caplog: pytest.LogCaptureFixture):
    step = mg.TrainStep(make_net(), sgd, unreached="allow")
    step(X)
    step(X)
    told = [r.message for r in caplog.records]
    assert [m.split(",")[0] for m in told] == ["the network returns (2"]
    assert "give loss_fn=, or a network that returns the loss" in told[0]


def test_what_trains_is_nothing_where_all_is_frozen_and_the_call_says_why():
    net = make_net()
    step = mg.TrainStep(net, sgd, nn.MSELoss(), unreached="allow")
    with mg.freeze(net, "*"):
        assert step.trainable == []
        with pytest.raises(ValueError, match=r"4 frozen by freeze\('\*'\); unfreeze some"):
            step(X, X)
    assert len(step.trainable) == 4


def test_where_a_stop_leaves_nothing_the_advice_is_to_take_it_away():
    net = make_net()
    mg.stop_gradient(net, "1")
    with pytest.raises(ValueError, match=r"4 that no gradient reaches; take a stop away with mg"):
        mg.TrainStep(net, sgd, nn.MSELoss())(X, X)


def test_where_trainable_leaves_nothing_the_advice_is_to_widen_it():
    net = nn.SequentialCell(nn.Dense(3, 3), nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match=r"4 outside trainable=; widen trainable="):
        mg.TrainStep(net, sgd, nn.MSELoss(), trainable="1.moving_mean")


def test_a_network_that_runs_eagerly_only_trains_and_its_reach_is_said_to_be_unknown(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = Eager()
    before = mg.Snapshot(net)
    with caplog.at_level(logging.WARNING):
        mg.TrainStep(net, sgd, nn.MSELoss())(X, X)
    assert before.moved() == ["layer.weight", "layer.bias"]
    assert "does not compile as a graph (Unsupported statement 'Try'" in caplog.text
    assert "ERROR" not in capfd.readouterr().err


@pytest.mark.parametrize("wish", ["statistics", "dropout"])
def test_a_freeze_with_a_wish_that_is_no_choice_is_refused(wish: str):
    with pytest.raises(TypeError, match=rf"{wish} 'no' is no choice; give True or False"):
        mg.freeze(make_net(), "0", **{wish: "no"})  # pyright: ignore[reportArgumentType]


def test_a_cell_of_the_network_is_a_pattern_for_what_lies_in_it():
    net = make_net()
    assert mg.freeze(net, net[1]).names == ["1.weight", "1.bias"]
    with pytest.raises(mg.NoMatchError, match="none of its parameters is in this network"):
        mg.freeze(net, nn.Dense(2, 2))


def test_a_name_that_every_block_has_is_proposed_with_a_star():
    block = [nn.SequentialCell(nn.Dense(2, 2)) for _ in range(3)]
    with pytest.raises(mg.NoMatchError, match=r"did you mean '\*\.weight' or"):
        mg.freeze(nn.SequentialCell(*block), "weight")


WRAPPERS = [
    pytest.param(nn.ReLU, r"wrapper ReLU makes no CellWrapper", id="class"),
    pytest.param(nn.ReLU(), r"wrapper ReLU\(\.\.\.\) makes no CellWrapper", id="instance"),
]


@pytest.mark.parametrize(("wrapper", "message"), WRAPPERS)
def test_something_that_makes_no_wrapper_is_refused_before_it_is_called(
    wrapper: object, message: str
):
    net = make_net()
    with pytest.raises(TypeError, match=message):
        mg.wrap(net, "0", wrapper=wrapper)  # pyright: ignore[reportArgumentType]
    assert mg.wrapped(net) == []
