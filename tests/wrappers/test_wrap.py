"""wrap: in every kind of place, after a compiled call too, and all or nothing."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import msgrad as mg
from tests.nets.wrapped_nets import (
    Around,
    Doubled,
    Everywhere,
    Gated,
    Listed,
    ReadsWeight,
    Shared,
    X,
    bits_of,
    cells_of,
    dense,
    gradients,
    three,
)

# --- where a wrapper is put


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        pytest.param("first", ["first"], id="attribute"),
        pytest.param("seq", ["seq"], id="SequentialCell"),
        pytest.param("seq.1.0.0", ["seq.1.0.0"], id="three levels deep"),
        pytest.param("items.*", ["items.0", "items.1"], id="CellList"),
        pytest.param("table.left", ["table.left"], id="CellDict"),
        pytest.param(
            nn.Dense,
            ["odd", "seq.0", "seq.1.0.0", "items.0", "items.1", "table.left"],
            id="class",
        ),
        pytest.param(lambda path, cell: path.endswith("0.0"), ["seq.1.0.0"], id="callable"),
    ],
)
def test_wrap_returns_the_paths_in_network_order_and_runs_the_wrappers(mode, pattern, paths):
    plain, net = Everywhere(), Everywhere()
    assert mg.wrap(net, pattern, wrapper=Doubled) == paths
    assert [path for path, _ in mg.wrapped(net)] == paths
    # In evaluation the net is linear but for the biases, so each wrapper shows in the output.
    assert bits_of(net(X)) != bits_of(plain(X))


def test_the_wrapper_runs_inside_a_sequential_cell(mode):
    net = nn.SequentialCell(dense(2, 2))
    plain = net(X).asnumpy()
    mg.wrap(net, "0", wrapper=Doubled)
    assert net(X).asnumpy().tolist() == (2 * plain).tolist()
    assert net[0] is net.cell_list[0]


def test_one_cell_in_two_places_gets_one_wrapper_in_both(mode):
    net = Shared()
    plain = ops.relu(X) @ net.one.weight.T + X @ net.one.weight.T + 2 * net.one.bias
    assert mg.wrap(net, "one", wrapper=Doubled) == ["one", "seq.1"]
    assert net.one is net.seq[1]
    assert [p.name for p in net.get_parameters()] == ["one.weight", "one.bias"]
    np.testing.assert_allclose(net(X).asnumpy(), 2 * plain.asnumpy(), rtol=1e-6)
    assert mg.unwrap(net, "seq.1") == ["one", "seq.1"]
    assert net.one is net.seq[1]
    assert isinstance(net.one, nn.Dense)


def test_a_cell_wrapped_by_hand_in_one_place_is_wrapped_in_the_other_too():
    net = Shared()
    cell, stopped = net.one, mg.StopGradient(net.one)
    net._cells["one"] = stopped
    assert mg.wrap(net, "seq.1", wrapper=Doubled) == ["one", "seq.1"]
    assert (type(net.one), net.one.cell) == (Doubled, stopped)
    assert (type(net.seq[1]), net.seq[1].cell) == (Doubled, cell)


def test_a_second_wrapper_goes_around_the_first():
    net = three()
    mg.stop_gradient(net, "0")
    mg.wrap(net, "0", wrapper=Doubled)
    assert [(path, type(w)) for path, w in mg.wrapped(net)] == [
        ("0", Doubled),
        ("0", mg.StopGradient),
    ]


def test_a_wrapper_inside_a_wrapped_cell_and_around_it():
    net = nn.SequentialCell(three())
    mg.wrap(net, "0.2", wrapper=Doubled)
    mg.wrap(net, "0", wrapper=mg.StopGradient)
    mg.wrap(net, "0.0", wrapper=Doubled)
    assert [path for path, _ in mg.wrapped(net)] == ["0", "0.0", "0.2"]


def test_a_match_inside_a_match_is_not_wrapped_again():
    net = nn.SequentialCell(three())
    assert mg.wrap(net, "*", wrapper=Doubled) == ["0"]


def test_cells_inside_a_wrapper_as_the_root_are_wrapped_and_unwrapped():
    net = mg.StopGradient(three())
    assert mg.wrap(net, "0", wrapper=Doubled) == ["0"]
    assert [path for path, _ in mg.wrapped(net)] == ["", "0"]
    assert mg.unwrap(net, "0") == ["0"]
    assert [path for path, _ in mg.wrapped(net)] == [""]


def test_parameters_of_a_wrapper_get_the_path_as_their_prefix_once():
    shared = ms.Parameter(Tensor([1.0, 1.0]), name="gate")

    def gated(cell: nn.Cell) -> Gated:
        wrapper = Gated(cell)
        wrapper.gate = shared
        return wrapper

    net = three()
    mg.wrap(net, "0", "2", wrapper=gated)
    assert shared.name == "0.gate"
    assert net[2].adapter.weight.name == "2.adapter.weight"


# --- after the first call


def test_wrapping_and_unwrapping_after_a_compiled_call_take_effect(mode):
    net = nn.SequentialCell(dense(2, 2))
    plain = net(X).asnumpy()
    mg.wrap(net, "0", wrapper=Doubled)
    assert net(X).asnumpy().tolist() == (2 * plain).tolist()
    mg.unwrap(net)
    assert net(X).asnumpy().tolist() == plain.tolist()


def test_a_train_cell_made_by_hand_sees_it_when_its_graphs_are_cleared(mode):
    net = nn.SequentialCell(dense(2, 2))
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.5))
    step(X)
    moved = bits_of(net[0].weight)
    mg.stop_gradient(net, "0")
    step.compile_cache.clear()
    step(X)
    assert bits_of(net[0].weight) == moved


# --- what is refused, with nothing changed


@pytest.mark.parametrize(
    ("hold", "kind"),
    [
        pytest.param(lambda cell: [cell], "list", id="list"),
        pytest.param(lambda cell: (1, (cell,)), "tuple", id="tuple in a tuple"),
        pytest.param(lambda cell: {"a": [cell]}, "dict", id="list in a dict"),
    ],
)
def test_a_cell_that_is_also_held_in_a_plain_container_is_refused(hold, kind):
    net = Listed(hold)
    before = cells_of(net)
    with pytest.raises(
        mg.ArgumentError,
        match=rf"cell 'inner.inner' is also held in the plain {kind} 'inner.kept', .* nn\.CellList",
    ):
        mg.wrap(net, "free", "inner.inner", wrapper=Doubled)
    assert cells_of(net) == before
    assert mg.wrap(net, "free", wrapper=Doubled) == ["free"]


@pytest.mark.parametrize(
    ("pattern", "kind"), [("items", "CellList"), ("table", "CellDict"), ("bare", "Cell")]
)
def test_a_cell_that_is_never_called_is_refused(pattern, kind):
    net = Everywhere()
    net.bare = nn.Cell()
    net.bare.inner = dense(2, 2)
    before = cells_of(net)
    remedy = rf"cell '{pattern}' is a {kind}, .*; wrap its items: '{pattern}\.\*'"
    with pytest.raises(mg.ArgumentError, match=remedy):
        mg.wrap(net, "odd", pattern, wrapper=Doubled)
    assert cells_of(net) == before
    assert mg.wrap(net, f"{pattern}.*", wrapper=Doubled)


@pytest.mark.parametrize("wrapper_root", [False, True])
def test_the_network_itself_is_refused(wrapper_root):
    net = Around(dense(2, 2))
    net = mg.StopGradient(net) if wrapper_root else net
    with pytest.raises(mg.ArgumentError, match=r"StopGradient\(net\)"):
        mg.wrap(net, net, wrapper=Doubled)
    assert len(mg.wrapped(net)) == wrapper_root


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        pytest.param(
            lambda cell: cell, "returned a Dense for cell '0', not a CellWrapper", id="the cell"
        ),
        pytest.param(lambda cell: None, "returned a NoneType for cell '0'", id="nothing"),
        pytest.param(
            lambda cell: Doubled(nn.ReLU()), "returned a Doubled for cell '0'", id="another cell"
        ),
        pytest.param("StopGradient", "wrapper 'StopGradient' cannot be called", id="a name"),
    ],
)
def test_a_wrapper_that_does_not_wrap_the_cell_is_refused(wrapper, message):
    net = three()
    before = cells_of(net)
    with pytest.raises(mg.ArgumentTypeError, match=message):
        mg.wrap(net, "0", wrapper=wrapper)
    assert cells_of(net) == before


def test_a_wrapper_that_fails_at_the_second_cell_changes_nothing():
    net = three()
    before = cells_of(net)

    def only_dense(cell: nn.Cell) -> mg.CellWrapper:
        if not isinstance(cell, nn.Dense):
            raise RuntimeError("no")
        return Doubled(cell)

    with pytest.raises(RuntimeError, match="no"):
        mg.wrap(net, "*", wrapper=only_dense)
    assert cells_of(net) == before


def test_a_pattern_that_matches_nothing_changes_nothing():
    net = three()
    with pytest.raises(mg.NoMatchError, match="pattern 'conv1' matched none of 3 cells"):
        mg.wrap(net, "0", "conv1", wrapper=Doubled)
    assert mg.wrapped(net) == []


def test_a_parent_that_reads_the_weight_goes_past_the_wrapper(mode):
    plain, net = ReadsWeight(), ReadsWeight()
    mg.stop_gradient(net, "child")
    assert gradients(net, X) == gradients(plain, X)
