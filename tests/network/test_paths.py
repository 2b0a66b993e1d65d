"""Where cells and parameters stand; MindSpore's own walks are the oracle."""

from __future__ import annotations

import pytest
from mindspore import nn

import msgrad as mg
from msgrad.network import cell_paths, paths_of, places
from tests.nets.select_nets import (
    Biased,
    Branchy,
    Gained,
    Twice,
    branchy_wrapped,
    by_identity,
    gained,
    train_cell,
    with_loss,
)
from tests.nets.shared import Tied

NETWORKS = [
    pytest.param(Branchy, id="containers"),
    pytest.param(branchy_wrapped, id="wrapped"),
    pytest.param(gained, id="wrappers-with-parameters"),
    pytest.param(Twice, id="shared-cell"),
    pytest.param(Tied, id="tied-weight"),
    pytest.param(with_loss, id="loss-cell"),
    pytest.param(train_cell, id="train-cell"),
    pytest.param(lambda: mg.CellWrapper(Branchy()), id="wrapped-as-a-whole"),
]


@pytest.mark.parametrize("make", NETWORKS)
def test_a_star_selects_what_mindspore_lists_in_its_order(make):
    net = make()
    assert by_identity(mg.select(net, "*")) == by_identity(net.get_parameters())


@pytest.mark.parametrize("make", NETWORKS)
def test_the_first_path_of_a_parameter_is_the_one_mindspore_gives(make):
    net = make()
    assert [(paths[0], id(p)) for p, paths in paths_of(net).items()] == [
        (path, id(p)) for path, p in net.parameters_and_names()
    ]


def walked(cell: nn.Cell, path: str) -> list[tuple[str, int]]:
    own = [(path + key, id(p)) for key, p in cell._params.items()]
    return own + [
        found
        for key, child in cell._cells.items()
        if child is not None
        for found in walked(child, f"{path}{key}.")
    ]


@pytest.mark.parametrize("make", [p for p in NETWORKS if "wrap" not in str(p.id)])
def test_without_wrappers_the_places_are_those_of_a_plain_recursion(make):
    net = make()
    assert [(place.path, id(place.parameter)) for place in places(net)] == walked(net, "")


def test_a_shared_cell_is_listed_at_each_of_its_places():
    net = Twice()
    assert [path for path, cell in cell_paths(net) if cell is net.again] == ["outer.0", "again"]
    assert paths_of(net)[net.again[0].weight] == ["outer.0.0.weight", "again.0.weight"]


def test_wrapping_leaves_every_place_and_every_path_as_it_was():
    net, wrapped = Branchy(), branchy_wrapped()
    assert [path for path, *_ in places(wrapped)] == [path for path, *_ in places(net)]
    assert [path for path, _ in cell_paths(wrapped)] == [path for path, _ in cell_paths(net)]
    assert [type(place.owner) for place in places(wrapped)] == [type(p.owner) for p in places(net)]


def test_what_two_wrappers_add_stands_behind_what_they_wrap_the_inner_one_first():
    net = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2))
    mg.wrap(net, "0", wrapper=Gained)
    mg.wrap(net, "0", wrapper=Biased)
    assert [path for path, *_ in places(net)] == [
        "0.weight",
        "0.bias",
        "0.gain",
        "0.adapter.weight",
        "0.adapter.bias",
        "0.shift",
        "1.weight",
        "1.bias",
    ]
    assert [path for path, _ in cell_paths(net)] == ["", "0", "0.adapter", "1"]


def test_a_network_deeper_than_the_recursion_limit_is_walked():
    net = inner = nn.SequentialCell()
    for _ in range(1500):
        inner._cells["x"] = inner = nn.SequentialCell()
    inner._cells["fc"] = nn.Dense(2, 2)
    assert cell_paths(net)[-1][0] == "x." * 1500 + "fc"
    assert len(mg.select(net, "*.weight")) == 1


def test_a_cell_that_contains_itself_is_walked_once():
    net = nn.SequentialCell(nn.Dense(2, 2))
    net._cells["back"] = net
    assert [path for path, _ in cell_paths(net)] == ["", "0"]
