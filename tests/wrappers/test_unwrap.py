"""unwrap gives back the very same cells; wrapped and the keys of a step say what stands where."""

from __future__ import annotations

import pytest
from mindspore import nn

import msgrad as mg
from msgrad.wrappers import stops_of, wrap_changes
from tests.nets.wrapped_nets import Doubled, Everywhere, cells_of, three, wrapped_everywhere


def test_unwrap_gives_back_the_very_same_cells():
    net = Everywhere()
    before = cells_of(net)
    for patterns in (["first", "odd", "items.*", "table.left", "norm"], ["seq"], ["seq.0", "odd"]):
        mg.wrap(net, *patterns, wrapper=Doubled)
    assert cells_of(net) != before
    paths = ["first", "odd", "seq", "seq.0", "items.0", "items.1", "table.left", "norm"]
    assert mg.unwrap(net) == paths
    after = cells_of(net)
    assert [path for path, _ in after] == [path for path, _ in before]
    assert all(now is then for (_, now), (_, then) in zip(after, before, strict=True))
    assert mg.unwrap(net) == []


def test_unwrap_takes_off_every_layer_of_a_kind_and_leaves_the_others():
    net = three()
    cell = net[0]
    for wrapper in (mg.StopGradient, Doubled, mg.ReverseGradient, mg.StopGradient):
        mg.wrap(net, "0", wrapper=wrapper)
    assert mg.unwrap(net, "0", kind=mg.StopGradient) == ["0"]
    assert [type(w) for _, w in mg.wrapped(net)] == [mg.ReverseGradient, Doubled]
    assert net[0].cell.cell is cell
    assert mg.unwrap(net, kind=Doubled) == ["0"]
    assert net[0].cell is cell


def test_unwrap_takes_nested_matches_and_no_others():
    net = wrapped_everywhere(Doubled)
    paths = ["seq", "seq.0", "seq.1", "seq.1.0", "seq.1.0.0"]
    assert mg.unwrap(net, "seq", "seq.*") == paths
    others = ["first", "odd", "odd", "items.0", "items.1", "table.left", "norm"]
    assert [path for path, _ in mg.wrapped(net)] == others


def test_unwrapping_what_is_not_wrapped_names_what_is():
    net = three()
    mg.wrap(net, "2", wrapper=Doubled)
    with pytest.raises(mg.NoMatchError, match=r"\('0',\) matched no cell in a CellWrapper; .* '2'"):
        mg.unwrap(net, "0")
    with pytest.raises(mg.NoMatchError, match="in a StopGradient; wrapped so are none"):
        mg.unwrap(net, "2", kind=mg.StopGradient)
    assert len(mg.wrapped(net)) == 1


def test_a_wrapper_that_is_the_network_cannot_be_taken_off_in_place():
    net = mg.StopGradient(mg.ScaleGradient(three()))
    mg.wrap(net, "0", wrapper=Doubled)
    with pytest.raises(mg.ArgumentError, match=r"net is itself a StopGradient, .* net\.cell"):
        mg.unwrap(net)
    assert len(mg.wrapped(net)) == 3
    assert mg.unwrap(net, kind=mg.ScaleGradient) == [""]
    assert [type(w) for _, w in mg.wrapped(net)] == [mg.StopGradient, Doubled]


@pytest.mark.parametrize("kind", [nn.Dense, "StopGradient", mg.StopGradient(nn.ReLU())], ids=str)
def test_kind_is_a_class_of_wrappers(kind):
    with pytest.raises(mg.ArgumentTypeError, match="is no class of wrappers"):
        mg.unwrap(three(), kind=kind)


def test_wrapped_needs_a_cell():
    with pytest.raises(mg.ArgumentTypeError, match="net 'net' is no Cell"):
        mg.wrapped("net")


def test_changes_grow_with_every_wrapping_and_unwrapping_and_not_with_a_failed_one():
    net, seen = three(), [wrap_changes()]
    mg.wrap(net, "0", wrapper=Doubled)
    seen.append(wrap_changes())
    mg.unwrap(net)
    seen.append(wrap_changes())
    with pytest.raises(mg.NoMatchError, match="conv1"):
        mg.wrap(net, "conv1", wrapper=Doubled)
    assert seen == sorted(set(seen))
    assert wrap_changes() == seen[-1]


def test_the_key_of_the_stops_tells_path_class_and_place_but_no_factor():
    net = three()
    assert stops_of(net) == ()
    mg.scale_gradient(net, "0", scale=0.5)
    mg.stop_gradient(net, "2", at="input")
    key = stops_of(net)
    assert [(path, kind.rpartition(".")[2], at) for path, kind, at in key] == [
        ("0", "ScaleGradient", "output"),
        ("2", "StopGradient", "input"),
    ]
    net[0].set_scale(0.25)
    assert stops_of(net) == key
    assert len({key, stops_of(three())}) == 2
