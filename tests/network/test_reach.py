"""The reach of a gradient: from the structure of the graph, by trials where that hides it."""

from __future__ import annotations

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import msgrad as mg
from msgrad.network import find_reach
from tests.nets.reach_nets import (
    BehindZeroBprop,
    Branching,
    Dead,
    Gated,
    HandStop,
    Plain,
    Rarely,
    Recurrent,
    Residual,
    Sign,
    StraightThrough,
    batch,
)
from tests.nets.shared import Tied

UNREACHED = [
    pytest.param(
        Plain,
        {"norm.moving_mean", "norm.moving_variance", "unused.weight", "unused.bias"},
        id="unused",
    ),
    pytest.param(Residual, set(), id="residual"),
    pytest.param(HandStop, {"a.weight", "a.bias"}, id="hand-written-stop"),
    pytest.param(Sign, {"a.weight", "a.bias"}, id="sign"),
    pytest.param(StraightThrough, set(), id="straight-through"),
    pytest.param(BehindZeroBprop, {"a.weight", "a.bias"}, id="zero-bprop"),
    pytest.param(Gated, {"chosen.weight", "chosen.bias"}, id="zero-gate-and-argmax"),
    pytest.param(Dead, set(), id="dead-relu"),
    pytest.param(Recurrent, set(), id="lstm"),
]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize(("make", "cut"), UNREACHED)
def test_the_reach_is_what_the_structure_allows(make: type[nn.Cell], cut: set[str]):
    net = make().set_train()
    before = mg.Snapshot(net)
    assert set(mg.reach(net, batch())) == {p.name for p in net.get_parameters()} - cut
    assert before.compare().equal


def test_the_names_come_in_network_order_whatever_the_flags():
    net = Plain()
    mg.freeze(net, "a", "b.bias")
    assert mg.reach(net, batch()) == [
        "a.weight",
        "a.bias",
        "norm.gamma",
        "norm.beta",
        "b.weight",
        "b.bias",
    ]


def test_a_stop_on_one_branch_leaves_the_skip_path():
    net = Residual()
    mg.stop_gradient(net, "branch")
    assert mg.reach(net, batch()) == ["stem.weight", "stem.bias", "head.weight", "head.bias"]
    mg.stop_gradient(net, "head", at="input")
    assert mg.reach(net, batch()) == ["head.weight", "head.bias"]


def test_the_reach_agrees_with_real_gradients_of_plain_mindspore():
    net = Residual()
    mg.stop_gradient(net, "stem")
    weights = net.trainable_params()
    gradients = ops.GradOperation(get_by_list=True)(net, weights)(batch())
    moved = [p.name for p, g in zip(weights, gradients, strict=True) if np.any(g.asnumpy() != 0)]
    assert (
        mg.reach(net, batch())
        == moved
        == ["branch.weight", "branch.bias", "head.weight", "head.bias"]
    )


def test_a_tied_weight_is_reached_by_either_use():
    net = Tied()
    mg.stop_gradient(net, "embedding")
    index = Tensor(np.array([0, 3]))
    assert set(mg.reach(net, index)) == {p.name for p in net.get_parameters()}


@pytest.mark.usefixtures("mode")
def test_a_branch_chosen_by_values_is_decided_by_silent_trials(capfd: pytest.CaptureFixture[str]):
    net = Branching().set_train()
    before = mg.Snapshot(net)
    found = find_reach(net, (batch(),))
    assert set(found.reached) == {
        *("a.weight", "a.bias", "b.weight", "b.bias"),
        *("norm.gamma", "norm.beta", "head.weight", "head.bias"),
    }
    assert {"unused.weight", "unused.bias"} <= set(found.unreached) | set(found.unseen)
    assert before.compare().equal
    assert "seen from the graph" not in capfd.readouterr().out


def test_a_branch_that_no_trial_takes_is_unseen_and_not_called_unreached():
    found = find_reach(Rarely(), (batch(),))
    assert found.reached == ["a.weight", "a.bias"]
    assert found.unseen == ["rare.weight", "rare.bias"]
    assert found.unreached == []


def test_a_network_that_is_a_function_is_refused():
    with pytest.raises(TypeError, match=r"is a function; give a Cell"):
        mg.reach(batch, batch())  # pyright: ignore[reportArgumentType]


def test_no_inputs_are_refused():
    with pytest.raises(ValueError, match="reach got no inputs; give one batch"):
        mg.reach(Plain())
