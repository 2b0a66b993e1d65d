"""A wrapped network computes what the plain one does: trained, copied, recomputed, exported."""

from __future__ import annotations

import copy
import functools

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

import msgrad as mg
from tests.nets.wrapped_nets import (
    KINDS,
    Around,
    Everywhere,
    Parent,
    X,
    bits_of,
    dense,
    gradients,
    wrapped_everywhere,
)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_values_and_gradients_are_those_of_the_plain_net(mode):
    plain, net = Everywhere().set_train(), wrapped_everywhere(mg.CellWrapper).set_train()
    assert bits_of(net(X)) == bits_of(plain(X))
    assert gradients(net, X) == gradients(plain, X)


@pytest.mark.parametrize("first", ["wrap", "recompute", "recompute around it"])
def test_recompute_leaves_the_gradients_as_they_are(mode, first):
    plain, net = Around(dense(2, 2)), Around(dense(2, 2))
    plain.inner.recompute()
    if first == "recompute":
        net.inner.recompute()
    if first == "recompute around it":
        net.recompute()
    mg.wrap(net, "inner", wrapper=mg.CellWrapper)
    mg.wrap(net, "inner", wrapper=lambda cell: mg.ScaleGradient(cell, scale=1.0))
    if first == "wrap":
        net.inner.recompute()
    assert gradients(net, X) == gradients(plain, X)


def _in_mixed_precision(level: str, wrap_first: bool | None) -> tuple:
    """Train a net in one of MindSpore's levels; what it gives, and what its parameters are."""
    net = nn.SequentialCell(dense(2, 2), nn.BatchNorm1d(2), dense(2, 2))
    patterns = (nn.Dense, nn.BatchNorm1d)
    if wrap_first is True:
        mg.wrap(net, *patterns, wrapper=mg.CellWrapper)
    net = ms.amp.auto_mixed_precision(net, level)
    if wrap_first is False:
        mg.wrap(net, *patterns, wrapper=mg.CellWrapper)
    assert len(mg.wrapped(net)) == (0 if wrap_first is None else 3)
    output = net.set_train()(X)
    parameters = [(p.name, p.dtype) for p in net.get_parameters()]
    return parameters, output.dtype, bits_of(output), gradients(net, X)


@functools.cache
def _plain_in_mixed_precision(level: str, mode: str) -> tuple:
    return _in_mixed_precision(level, None)


@pytest.mark.parametrize("level", ["O0", "O2", "O3", "auto"])
@pytest.mark.parametrize("wrap_first", [True, False], ids=["wrap then amp", "amp then wrap"])
def test_mixed_precision_gives_the_results_and_the_names_of_the_plain_net(mode, level, wrap_first):
    assert _in_mixed_precision(level, wrap_first) == _plain_in_mixed_precision(level, mode)


def test_a_deep_copy_is_a_network_of_its_own(mode, kind):
    net = nn.SequentialCell(dense(2, 2), nn.SequentialCell(dense(2, 2)))
    mg.wrap(net, nn.Dense, wrapper=kind)
    twin = copy.deepcopy(net)
    assert [p.name for p in twin.get_parameters()] == [p.name for p in net.get_parameters()]
    assert [path for path, _ in mg.wrapped(twin)] == ["0", "1.0"]
    assert not {id(cell) for _, cell in mg.wrapped(net)} & {id(c) for _, c in mg.wrapped(twin)}
    before = bits_of(net(X))
    ms.ops.assign(twin[0].weight, twin[0].weight + 1)
    assert bits_of(net(X)) == before
    assert bits_of(twin(X)) != before
    twin[0].has_bias = False
    assert (twin[0].cell.has_bias, net[0].has_bias) == (False, True)


def test_a_wrapped_net_and_its_copy_stand_in_one_graph(mode):
    net = mg.ScaleGradient(dense(2, 2), scale=0.5)
    both = nn.SequentialCell(net, copy.deepcopy(net))
    both[1].set_scale(0.25)
    assert ms.grad(both)(X).asnumpy().tolist() == _input_gradient([0.5, 0.25])


def _input_gradient(factors: list[float]) -> list[list[float]]:
    """By hand: of the sum of the outputs of two dense layers, each with a factor."""
    weight = dense(2, 2).weight.asnumpy()
    return (np.ones((2, 2), np.float32) @ weight @ weight * np.prod(factors)).tolist()


@pytest.mark.parametrize(
    ("wrapper", "training"),
    [
        *(pytest.param(*kind.values, False, id=kind.id) for kind in KINDS),
        pytest.param(mg.ScaleGradient, True, id="scale in training"),
    ],
)
def test_an_exported_net_has_the_values_and_the_parameters_of_the_plain_one(
    mode, wrapper, training
):
    net = nn.SequentialCell(dense(2, 2), nn.SequentialCell(dense(2, 2), nn.ReLU()))
    net.set_train(training)
    expected, names = bits_of(net(X)), set(net.parameters_dict())
    mg.wrap(net, nn.Dense, wrapper=wrapper)
    ms.export(net, X, file_name="wrapped", file_format="MINDIR")
    ms.set_context(mode=ms.GRAPH_MODE)
    loaded = nn.GraphCell(ms.load("wrapped.mindir"))
    assert bits_of(loaded(X)) == expected
    assert {p.name for p in loaded.get_parameters()} == names


def test_model_trains_and_evaluates_a_wrapped_net(mode):
    net = mg.ScaleGradient(dense(2, 2), scale=0.5)
    before = net.weight.asnumpy().copy()
    arrays = (np.array([[1, 2]], np.float32), np.zeros((1, 2), np.float32))
    data = ms.dataset.NumpySlicesDataset(arrays, ["x", "y"], shuffle=False).batch(1)
    loss = nn.MSELoss(reduction="sum")
    model = ms.Model(net, loss, nn.SGD(net.trainable_params(), 0.125), metrics={"mse"})
    model.train(1, data, dataset_sink_mode=False)
    # By hand: the gradient of the sum of squares is 2·output, and half of it passes.
    step = 0.125 * 0.5 * 2 * (before @ [1, 2] + 0.25)
    after = before - np.outer(step, [1, 2])
    np.testing.assert_allclose(net.weight.asnumpy(), after, rtol=1e-5)
    error = np.sum((after @ [1, 2] + 0.25 - step) ** 2)
    measured = model.eval(data, dataset_sink_mode=False)["mse"]
    np.testing.assert_allclose(measured, error, rtol=1e-5)


def test_a_parent_uses_the_methods_the_weight_and_the_items_of_a_wrapped_cell(mode):
    plain, net = Parent(), Parent()
    mg.wrap(net, "child", "seq", wrapper=mg.CellWrapper)
    mg.wrap(net, "seq.0", wrapper=mg.CellWrapper)
    assert bits_of(net(X)) == bits_of(plain(X))
    assert gradients(net, X) == gradients(plain, X)
