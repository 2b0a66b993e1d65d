"""WeightUpdates: a cell that changes weights, with a count and states of its own."""

from __future__ import annotations

import numpy as np
import pytest
from mindspore import Tensor, ops

import msgrad as mg
from tests.nets.update_nets import (
    START,
    Cubic,
    CubicOfTwice,
    Halving,
    Holding,
    Remember,
    Slope,
    assert_equal,
    by_step,
    double,
    first_row,
    linear,
    three,
    values,
)

pytestmark = pytest.mark.usefixtures("mode")


def test_updates_count_and_read_their_step():
    net = linear()
    updates = mg.WeightUpdates(net, {"weight": by_step})
    counts = [int(updates().asnumpy()) for _ in range(3)]
    assert counts == [1, 2, 3]
    np.testing.assert_allclose(net.weight.asnumpy(), START / 1 / 2 / 3, rtol=1e-6)
    assert int(updates.step.asnumpy()) == 3


def test_a_rule_has_a_state_for_each_weight():
    net = three()
    before = values(net)
    updates = mg.WeightUpdates(net, {"*.weight": Remember()})
    updates()
    updates()
    # s1 = w, w1 = s1 + 0; s2 = s1 / 2 + w1 = 1.5 w, w2 = s2 + 1
    assert_equal(
        values(net),
        {n: 1.5 * v + 1 if n.endswith("weight") else v for n, v in before.items()},
    )


def test_state_has_names_of_its_own_and_the_weights_stay_the_networks():
    net = three()
    names = list(values(net))
    updates = mg.WeightUpdates(net, {"*.weight": Remember(), "1.weight": Halving()})
    assert [p.name for p in updates.get_parameters()] == [
        "updates.step",
        "updates.0.0.weight",
        "updates.0.2.weight",
        "updates.1.calls",
    ]
    assert not any(p.requires_grad for p in updates.get_parameters())
    updates.name_state("third")
    assert [p.name for p in updates.get_parameters()] == [
        "third.step",
        "third.0.0.weight",
        "third.0.2.weight",
        "third.1.calls",
    ]
    assert list(values(net)) == names
    assert updates.names == ["0.weight", "1.weight", "2.weight"]


def test_trying_a_rule_out_leaves_weights_and_state_alone():
    net = linear()
    rule = Halving()
    mg.WeightUpdates(net, {"weight": rule})
    assert int(rule.calls.asnumpy()) == 0
    assert net.weight.asnumpy().tobytes() == START.tobytes()


def test_updates_made_before_a_freeze_refuse_to_move_what_is_frozen_now():
    net = linear()
    updates = mg.WeightUpdates(net, {"weight": double})
    with mg.freeze(net, "weight"), pytest.raises(mg.FrozenWeightError, match="1 frozen of 1"):
        updates()
    assert net.weight.asnumpy().tobytes() == START.tobytes()
    updates()
    assert net.weight.asnumpy().tobytes() == (2 * START).tobytes()


def test_a_point_that_no_step_has_is_refused():
    with pytest.raises(mg.ArgumentError, match="when 'later' is no point of a step; give one of"):
        mg.WeightUpdates(linear(), {"*": double}, when="later")


def test_a_rule_of_another_shape_is_refused_when_updates_are_made():
    with pytest.raises(mg.ShapeError, match=r"changes shape or dtype of '1\.weight'"):
        mg.WeightUpdates(three(), {"1.weight": first_row})


def test_gradients_of_every_order_leave_the_update_out():
    x = Tensor(np.array([1.0], np.float32))

    def slopes(net: Cubic) -> tuple[float, float]:
        net.__dict__["update"] = mg.WeightUpdates(net, {"w": double})
        first = float(Slope(net, net.w)(x).asnumpy())
        ops.assign(net.w, Tensor([1.0]))
        return first, float(Slope(Slope(net, net.w), net.w)(x).asnumpy())

    # at w = 2 after the update: 3 w² = 12 and 6 w = 12
    assert slopes(Cubic()) == (12.0, 12.0)
    # the same with the doubling inside: 3 (2w)² · 2 = 24 and 6 (2w) · 4 = 48
    assert slopes(CubicOfTwice()) == (24.0, 48.0)


def test_two_rules_of_one_kind_have_a_state_each():
    net = three()
    rules = (Halving(), Halving())
    updates = mg.WeightUpdates(net, {"0.weight": rules[0], "1.weight": rules[1]})
    before = values(net)
    updates()
    assert [int(rule.calls.asnumpy()) for rule in rules] == [1, 1]
    assert_equal(
        values(net),
        {n: 0.5 * v if n in ("0.weight", "1.weight") else v for n, v in before.items()},
    )


def test_a_rule_that_holds_a_layer_of_the_network_is_refused():
    net = three()
    # MindSpore itself names the layer's weights after the rule's attribute.
    rule = Holding(net[1])
    names = list(values(net))
    with pytest.raises(mg.ArgumentError, match=r"the network's own 'layer\.weight'"):
        mg.WeightUpdates(net, {"0": rule})
    assert list(values(net)) == names
    assert [p.name for p in net.trainable_params()] == names
