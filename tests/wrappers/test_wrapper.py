"""A wrapped network is the same network: its names, its state, its attributes, its results."""

from __future__ import annotations

from collections import OrderedDict

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

import msgrad as mg
from tests.nets.wrapped_nets import (
    KINDS,
    Around,
    Clashing,
    Doubled,
    Everywhere,
    Gated,
    Helper,
    Shared,
    X,
    bits_of,
    dense,
    wrapped_everywhere,
)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


# --- names


def test_wrapping_changes_no_name_no_path_and_no_order(kind):
    plain, net = Everywhere(), wrapped_everywhere(kind)
    assert len(mg.wrapped(net)) == 12
    assert [p.name for p in net.get_parameters()] == [p.name for p in plain.get_parameters()]
    assert [p.name for p in net.trainable_params()] == [p.name for p in plain.trainable_params()]
    assert list(net.parameters_dict()) == list(plain.parameters_dict())
    paths = [path for path, _ in plain.parameters_and_names()]
    assert [path for path, _ in net.parameters_and_names()] == paths
    cells = [(path, type(cell)) for path, cell in plain.cells_and_names()]
    assert [(path, type(cell)) for path, cell in net.cells_and_names()] == cells
    assert "oddly_named" in net.parameters_dict()
    assert "odd.weight" in paths


def test_a_wrapper_as_the_root_lists_the_own_parameters_of_the_wrapped_cell():
    cell = dense(2, 2)
    direct = [path for path, _ in mg.StopGradient(cell).parameters_and_names(expand=False)]
    assert direct == ["weight", "bias"]


def test_a_cell_in_two_places_is_walked_once_with_its_wrapper():
    net = Shared()
    paths = [path for path, _ in net.cells_and_names()]
    mg.wrap(net, "one", wrapper=Gated)
    walked = list(net.cells_and_names())
    assert [path for path, _ in walked if path in paths] == ["", "one", "one", "seq", "seq.0"]
    assert len({id(cell) for _, cell in walked}) == len(walked)


def test_buffers_are_found_under_the_same_path():
    net = Around(Helper())
    mg.wrap(net, "inner", wrapper=mg.CellWrapper)
    assert net.load_state_dict(Around(Helper()).state_dict()) == ([], [])
    assert net.get_buffer("inner.shift") is net.inner.cell.shift
    assert [path for path, _ in net.named_buffers()] == ["inner.shift"]


def test_repr_shows_the_wrapper_around_the_cell():
    text = repr(mg.ScaleGradient(nn.ReLU(), scale=0.5))
    assert text == "ScaleGradient(\n  scale=0.5, at='output'\n  (cell): ReLU()\n)"


# --- state


def test_a_checkpoint_of_the_plain_net_fills_the_wrapped_one_and_the_other_way_round():
    plain, net = Everywhere(), wrapped_everywhere(mg.StopGradient)
    moved = [(p, bits_of(p + 1)) for p in plain.get_parameters()]
    for parameter, _ in moved:
        ms.ops.assign(parameter, parameter + 1)
    ms.save_checkpoint(plain, "plain.ckpt")
    assert ms.load_param_into_net(net, ms.load_checkpoint("plain.ckpt")) == ([], [])
    assert [bits_of(p) for p in net.get_parameters()] == [bits for _, bits in moved]
    ms.save_checkpoint(net, "wrapped.ckpt")
    back = Everywhere()
    assert ms.load_param_into_net(back, ms.load_checkpoint("wrapped.ckpt")) == ([], [])
    assert [bits_of(p) for p in back.get_parameters()] == [bits for _, bits in moved]


def test_state_dict_has_the_same_keys_and_values_and_loads_in_both_directions():
    plain, net = Everywhere(), wrapped_everywhere(mg.StopGradient)
    for parameter in plain.get_parameters():
        ms.ops.assign(parameter, parameter + 1)
    state = plain.state_dict()
    assert list(net.state_dict()) == list(state)
    assert net.load_state_dict(state) == ([], [])
    assert {k: bits_of(v) for k, v in net.state_dict().items()} == {
        k: bits_of(v) for k, v in state.items()
    }
    assert Everywhere().load_state_dict(net.state_dict()) == ([], [])


def test_state_dict_under_a_prefix_of_its_own():
    cell = mg.StopGradient(Gated(nn.ReLU()))
    keys = ["net.gate", "net.adapter.weight", "net.adapter.bias"]
    assert list(cell.state_dict(prefix="net.")) == keys
    with pytest.warns(FutureWarning, match="Positional args"):
        assert list(cell.state_dict({}, "net.")) == keys


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda state: state.pop("seq.1.0.0.bias"), id="missing"),
        pytest.param(lambda state: state.update({"odd.cell.x": X}), id="unexpected below"),
        pytest.param(lambda state: state.update({"first.other": X}), id="unexpected"),
        pytest.param(lambda state: state.update({"items.0.bias": X}), id="shape"),
        pytest.param(lambda state: state.update({"odd.bias": None}), id="type"),
    ],
)
def test_load_state_dict_reports_what_it_would_report_for_the_plain_net(spoil):
    plain, net = Everywhere(), wrapped_everywhere(mg.StopGradient)
    state = dict(plain.state_dict())
    spoil(state)
    with pytest.raises(RuntimeError, match="in loading state_dict") as of_plain:
        plain.load_state_dict(state)
    with pytest.raises(RuntimeError, match="in loading state_dict") as of_wrapped:
        net.load_state_dict(state)
    assert str(of_wrapped.value) == str(of_plain.value)


def test_keys_of_another_cell_whose_path_ends_the_same_way_are_left_alone():
    def named(**cells: nn.Cell) -> nn.SequentialCell:
        return nn.SequentialCell(OrderedDict(cells))

    net = named(deep=named(inner=named(cell=dense(2, 2))), inner=dense(2, 2))
    mg.wrap(net, "inner", wrapper=mg.StopGradient)
    state = net.state_dict()
    del state["deep.inner.cell.bias"]
    with pytest.raises(
        RuntimeError, match=r'Missing key.s. in state_dict: "deep\.inner\.cell\.bias"'
    ):
        net.load_state_dict(state)


def test_a_root_wrapper_reports_keys_without_a_segment_of_its_own():
    with pytest.raises(RuntimeError, match=r'Missing key.s. in state_dict: "bias"'):
        mg.StopGradient(dense(2, 2)).load_state_dict({"weight": X})


# --- attributes


def test_public_attributes_are_those_of_the_wrapped_cell():
    cell = Helper()
    wrapper = mg.CellWrapper(mg.StopGradient(cell))
    assert wrapper.weight is cell.weight
    assert wrapper.factor == 3.0
    assert wrapper.helper.__self__ is cell
    wrapper.factor, wrapper.new = 5.0, "new"
    assert (cell.factor, cell.new) == (5.0, "new")
    del wrapper.new
    assert not hasattr(cell, "new")
    other = ms.Parameter(Tensor([[1.0]]), name="weight")
    wrapper.weight = other
    assert cell.weight is other
    with pytest.raises(AttributeError, match="'Helper' object has no attribute 'nothing'"):
        _ = wrapper.nothing


def test_what_the_wrapper_was_built_with_stays_its_own():
    wrapper = Gated(Helper(), factor=7.0)
    assert (wrapper.factor, wrapper.cell.factor) == (7.0, 3.0)
    wrapper.factor = 8.0
    assert (wrapper.factor, wrapper.cell.factor) == (8.0, 3.0)
    del wrapper.factor
    assert wrapper.factor == 3.0


def test_private_attributes_are_not_those_of_the_wrapped_cell():
    cell = Helper()
    cell._mine = 1
    assert not hasattr(mg.CellWrapper(cell), "_mine")


def test_a_wrapped_container_is_used_like_the_container():
    seq = mg.CellWrapper(nn.SequentialCell(dense(2, 2), nn.ReLU(), dense(2, 2)))
    assert len(seq) == 3
    assert [type(layer) for layer in seq] == [nn.Dense, nn.ReLU, nn.Dense]
    seq[1] = nn.Tanh()
    assert isinstance(seq.cell[1], nn.Tanh)
    del seq[2]
    assert len(seq.cell) == 2
    seq.append(nn.ReLU())
    assert isinstance(seq.cell[2], nn.ReLU)
    assert not mg.CellWrapper(nn.SequentialCell())
    assert mg.CellWrapper(nn.ReLU())


def test_set_train_reaches_every_cell_and_the_own_method_of_the_one_it_is_called_on():
    net = Around(Helper())
    mg.wrap(net, "inner", wrapper=mg.CellWrapper)
    net.set_train()
    assert (net.inner.training, net.inner.cell.training, net.inner.asked) == (True, True, [])
    net.inner.set_train(False)
    assert (net.inner.training, net.inner.cell.training, net.inner.asked) == (False, False, [False])
    net.inner.training = True
    assert net.inner.cell.training is True


def test_a_wrapper_as_the_root_compiles_as_its_cell_would():
    cell = dense(2, 2)
    cell.set_jit_config(ms.JitConfig(jit_level="O0"))
    assert mg.CellWrapper(cell).jit_config_dict == cell.jit_config_dict != {}


def test_a_wrapper_begins_in_the_mode_of_its_cell():
    assert mg.CellWrapper(dense(2, 2).set_train()).training is True
    assert mg.CellWrapper(dense(2, 2)).training is False


# --- a user's own wrappers


def test_a_wrapper_of_ones_own_computes_what_it_says(mode):
    net = Around(dense(2, 2))
    plain = net(X).asnumpy()
    mg.wrap(net, "inner", wrapper=Doubled)
    assert net(X).asnumpy().tolist() == (2 * plain).tolist()


def test_parameters_of_ones_own_wrapper_follow_the_wrapped_ones_and_train(mode):
    net = Around(dense(2, 2))
    mg.wrap(net, "inner", wrapper=Gated)
    names = ["inner.weight", "inner.bias", "inner.gate"]
    names += ["inner.adapter.weight", "inner.adapter.bias"]
    assert [p.name for p in net.trainable_params()] == names
    assert [path for path, _ in net.parameters_and_names()] == names
    assert list(net.state_dict()) == names
    assert mg.select(net, "inner").names == names
    assert net.load_state_dict(net.state_dict()) == ([], [])
    before = [p.asnumpy().copy() for p in net.trainable_params()]
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.5))
    inner = net.inner.cell(X).asnumpy()
    step(X)
    # By hand: the output is inner·gate·2 + adapter(x), the gradient of its sum at the gate inner·2.
    gate = before[2] - 0.5 * 2 * inner.sum(0)
    np.testing.assert_allclose(net.inner.gate.asnumpy(), gate, rtol=1e-6)
    adapter = before[3] - 0.5 * X.asnumpy().sum(0)
    np.testing.assert_allclose(net.inner.adapter.weight.asnumpy(), adapter, rtol=1e-6)
    mg.unwrap(net)
    assert [p.name for p in net.trainable_params()] == names[:2]


def test_the_root_wrapper_lists_its_own_direct_parameters_last():
    paths = [path for path, _ in Gated(dense(2, 2)).parameters_and_names(expand=False)]
    assert paths == ["weight", "bias", "gate"]


def test_a_parameter_of_a_wrapper_may_not_take_a_name_of_the_wrapped_cell():
    with pytest.raises(mg.ArgumentError, match=r"attribute 'weight' of Clashing is taken .* Dense"):
        Clashing(dense(2, 2))
    assert [path for path, _ in Clashing(nn.ReLU()).parameters_and_names()] == ["weight"]


def test_two_wrappers_of_one_class_on_one_cell_may_not_take_the_same_names():
    with pytest.raises(mg.ArgumentError, match="attribute 'gate' of Gated is taken"):
        Gated(Gated(dense(2, 2)))


def test_only_a_cell_can_be_wrapped():
    with pytest.raises(mg.ArgumentTypeError, match=r"cell 'conv1' is a str, not an nn\.Cell"):
        mg.CellWrapper("conv1")
