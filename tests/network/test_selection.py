"""A selection as a sequence of parameters."""

from __future__ import annotations

import pytest
from mindspore import nn

import msgrad as mg
from tests.nets.select_nets import Branchy, by_identity, weight


def test_a_selection_is_a_sequence_that_compares_by_identity():
    net = Branchy()
    selection = mg.select(net, "heads")
    first, second, third = (
        net.heads["digits"].weight,
        net.heads["digits"].bias,
        net.heads["colour"].weight,
    )
    assert by_identity(selection) == by_identity([first, second, third])
    assert selection[0] is first
    assert selection[-1] is third
    assert second in selection
    assert weight("heads.digits.bias", 3) not in selection
    assert selection.index(third) == 2
    assert selection.count(second) == 1
    assert selection.count(net.scale) == 0
    assert by_identity(reversed(selection)) == by_identity([third, second, first])


def test_a_slice_of_a_selection_is_a_selection():
    net = Branchy()
    assert mg.select(net, "heads")[1:] == mg.select(net, "heads.digits.bias", "heads.colour")
    assert mg.select(net, "heads")[1:] != mg.select(net, "heads")
    assert mg.select(net, "heads") != mg.select(net, "heads").names
    assert len({mg.select(net, "heads"), mg.select(net, "heads"), mg.select(net, "scale")}) == 2


def test_a_selection_shows_its_names():
    assert repr(mg.select(Branchy(), "gate", "scale")) == "Selection(['scale', 'gate'])"


def test_a_selection_is_read_only():
    with pytest.raises(TypeError, match="item assignment"):
        mg.select(Branchy(), "heads")[0] = weight("x")  # pyright: ignore[reportIndexIssue]


def test_what_is_not_in_a_selection_has_no_index():
    with pytest.raises(ValueError, match=r"Parameter 'scale' is none of 3 parameters"):
        mg.select(Branchy(), "heads").index(weight("scale"))


def test_a_list_of_a_selection_is_what_an_optimizer_takes():
    optimizer = nn.SGD(list(mg.select(Branchy(), "heads")), 0.1)
    assert [p.name for p in optimizer.parameters] == [
        "heads.digits.weight",
        "heads.digits.bias",
        "heads.colour.weight",
    ]
