"""The layers of a picture: which parameters stand together, and what is told of them."""

from __future__ import annotations

import math

import pytest

from msgrad.auditing._plot import layers_of_rows
from tests.auditing.audits import held, leaks, statistic, trained, transformer


def test_the_parameters_of_one_cell_are_one_layer():
    rows = [held("conv1.weight"), held("conv1.bias"), trained("fc.weight", gradient=3.0)]
    rows += [trained("fc.bias", gradient=4.0, max_change=0.5), trained("scale")]
    layers = layers_of_rows(rows, 10)
    assert [layer.label for layer in layers] == ["conv1", "fc", "scale"]
    assert [layer.state for layer in layers] == ["held", "trained", "trained"]
    assert [layer.change for layer in layers] == [0.0, 0.5, 0.02]
    assert layers[1].gradient == pytest.approx(5.0)


STATES = [
    pytest.param([held("c.w"), held("c.b")], "held", id="held"),
    pytest.param([held("c.w"), trained("c.b")], "part held", id="in-part"),
    pytest.param([held("c.w"), leaks("c.b", 0.1)], "leaks", id="a-problem-beside-held"),
    pytest.param([trained("c.w", verdict="zero"), leaks("c.b", 0.1)], "leaks", id="the-worst"),
    pytest.param([held("c.gamma"), statistic("c.moving_mean")], "held", id="adapting-statistic"),
    pytest.param([statistic("c.moving_mean")], "trained", id="statistics-alone"),
]


@pytest.mark.parametrize(("rows", "state"), STATES)
def test_a_layer_is_in_the_state_of_its_weights_the_worst_first(rows, state):
    assert [layer.state for layer in layers_of_rows(rows, 10)] == [state]


def test_statistics_do_not_hide_how_far_the_weights_moved():
    rows = [trained("norm.gamma", max_change=0.001), statistic("norm.moving_mean")]
    assert layers_of_rows(rows, 10)[0].change == 0.001


def test_a_gradient_that_nobody_knows_is_none_and_a_broken_one_stays_so():
    rows = [trained("a.w", gradient=None), trained("b.w", gradient=math.nan), trained("b.b")]
    first, second = layers_of_rows(rows, 10)
    assert first.gradient is None
    assert str(second.gradient) == "nan"


DEPTHS = [
    pytest.param(100, "layers.0.attn.q", 12 * 7 - 12 + 12 + 1, id="every-cell"),
    pytest.param(64, "layers.0.attn", 12 * 3 + 1, id="their-parents"),
    pytest.param(20, "layers.0", 13, id="whole-blocks"),
    pytest.param(5, "layers", 2, id="the-top"),
]


@pytest.mark.parametrize(("most", "first", "count"), DEPTHS)
def test_too_many_cells_are_drawn_as_the_cells_around_them(most, first, count):
    layers = layers_of_rows(transformer().rows, most)
    assert (layers[0].label, len(layers)) == (first, count)


def test_too_many_cells_side_by_side_are_joined_in_network_order():
    layers = layers_of_rows([trained(f"{n}.w") for n in range(100)], 30)
    assert len(layers) == 25
    assert [layers[0].label, layers[-1].label] == ["0 … 3", "96 … 99"]
