"""Whose state is it: the names and places in which MindSpore's optimizers keep what they keep."""

from __future__ import annotations

import pytest
from mindspore import nn
from mindspore.experimental import optim

from msgrad._slots import own_parameters, owner_of, rates_of
from tests.step_nets import ScaledStep, Trap

NAMES = {"weight", "head.weight", "encoder.head.weight"}
OWNERS = [
    pytest.param("moments.encoder.head.weight", "encoder.head.weight", id="longest-name"),
    pytest.param("moments.head.weight", "head.weight", id="shorter-name"),
    pytest.param("moments.weight", "weight", id="name-without-a-dot"),
    pytest.param("eta_encoder.head.weight", "encoder.head.weight", id="asgd-joins-without-a-dot"),
    pytest.param("mu_product_head.weight", "head.weight", id="nadam"),
    pytest.param("exp_avg_sq_row_encoder.head.weight", "encoder.head.weight", id="adafactor-rows"),
    pytest.param("global_step", None, id="counter"),
    pytest.param("moments.other.bias", None, id="foreign"),
]


@pytest.mark.parametrize(("state", "owner"), OWNERS)
def test_a_slot_belongs_to_the_longest_name_that_ends_it(state: str, owner: str | None):
    assert owner_of(state, NAMES) == owner


def test_slots_in_plain_lists_are_found_too():
    net = Trap()
    weights = net.trainable_params()
    found = {p.name for p in own_parameters(optim.NAdam(weights), weights)}
    assert {f"mu_product_{p.name}" for p in weights} < found
    assert {f"exp_avg.{p.name}" for p in weights} < found
    assert not found & {p.name for p in weights}


def test_a_loss_scale_that_is_no_cell_is_found_too():
    net = Trap()
    step = ScaledStep(net, nn.SGD(net.trainable_params(), 0.1))
    found = {id(p) for p in own_parameters(step, net.get_parameters())}
    assert {id(step.scaler.scale_value), id(step.skipped)} < found


def test_a_rate_is_that_of_the_group_whatever_kind_of_optimizer():
    first, *rest = Trap().trainable_params()
    groups = [{"params": [first], "lr": 0.5}, {"params": rest, "lr": 0.25}]
    nn_rates = rates_of(nn.SGD([dict(g) for g in groups], 1.0))
    exp_rates = rates_of(optim.SGD([dict(g) for g in groups], 1.0))
    expected = {first.name: 0.5} | {p.name: 0.25 for p in rest}
    assert {n: float(r.asnumpy()) for n, r in nn_rates.items()} == expected
    assert {n: float(r.asnumpy()) for n, r in exp_rates.items()} == expected


def test_a_rate_that_a_rule_computes_has_no_parameter():
    weights = Trap().trainable_params()
    assert rates_of(nn.SGD(weights, nn.ExponentialDecayLR(0.5, 0.5, 1))) == {}
