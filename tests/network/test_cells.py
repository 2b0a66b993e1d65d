"""Walking the cells of a network, and forgetting what was compiled."""

from __future__ import annotations

import pytest
from mindspore import nn

import msgrad as mg
from msgrad.network import every_cell
from tests.nets.behaviour_nets import Containers, Doubled, Jitted, data, equal, network


def test_each_cell_is_listed_once_where_it_stands_first_and_none_is_passed_over():
    net = Containers()
    kinds = [type(c).__name__ for c in every_cell(net)]
    assert kinds == ["Containers", "CellList", "Dense", "BatchNorm1d", "CellDict", "Dense"]


def test_a_wrapper_is_listed_behind_what_it_wraps():
    net = nn.SequentialCell(nn.Dense(1, 1), nn.ReLU())
    mg.wrap(net, "0", wrapper=Doubled)
    kinds = [type(c).__name__ for c in every_cell(net)]
    assert kinds == ["SequentialCell", "Dense", "Doubled", "ReLU"]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("make", [Jitted, lambda: nn.SequentialCell(Jitted())])
def test_a_wrapper_inside_a_method_under_jit_is_seen_at_the_next_call(make):
    net = network(make).set_train()
    x = data((6, 4))
    plain = net[0](x)
    mg.wrap(net, nn.BatchNorm1d, wrapper=Doubled)
    assert equal(net[0](x), plain * 2)
    mg.unwrap(net)
    assert equal(net[0](x), plain)
