"""PrintWeights prints from inside the graph: under which names, which values, when."""

from __future__ import annotations

import copy
import re

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

import msgrad as mg
from msgrad.backend import compiled_graph
from tests.nets.wrapped_nets import Around, X, bits_of, dense, three


@pytest.fixture
def printed(capfd):
    """Return what was printed since the last call: pairs of a name and its numbers."""

    def read() -> list[tuple[str, np.ndarray]]:
        # The operator prints on the file descriptor, from a thread of its own.
        ms.runtime.synchronize()
        text = capfd.readouterr().out
        found = re.findall(r"^([\w.]+)\nTensor\(shape=.*?value=(.*?)\)\n", text, re.M | re.S)
        return [(name, np.array(re.sub(r"[\[\],]", " ", v).split(), float)) for name, v in found]

    return read


def training(net: nn.Cell) -> nn.TrainOneStepCell:
    return nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.5)).set_train()


def test_each_training_call_prints_the_weights_it_computes_with_under_their_names(mode, printed):
    net = three()
    mg.wrap(net, "2", wrapper=mg.PrintWeights)
    step = training(net)
    for _ in range(2):
        before = net[2].weight.asnumpy().copy(), net[2].bias.asnumpy().copy()
        step(X)
        (name, weight), (other, bias) = printed()
        assert (name, other) == ("2.weight", "2.bias")
        # Nine digits are printed.
        np.testing.assert_allclose(weight, before[0].ravel(), rtol=1e-7)
        np.testing.assert_allclose(bias, before[1].ravel(), rtol=1e-7)
    assert not np.array_equal(net[2].bias.asnumpy(), before[1])


def test_every_third_call_prints_beginning_with_the_first(mode, printed):
    net = nn.SequentialCell(dense(2, 2))
    mg.wrap(net, "0", wrapper=lambda cell: mg.PrintWeights(cell, every=3))
    step = training(net)
    counts = []
    for _ in range(7):
        step(X)
        counts.append(len(printed()))
    assert counts == [2, 0, 0, 2, 0, 0, 2]


def test_evaluation_neither_prints_nor_counts(mode, printed):
    net = nn.SequentialCell(mg.PrintWeights(dense(2, 2), every=2))
    for training_now in (True, False, False, True, True):
        net.set_train(training_now)
        net(X)
    assert [name for name, _ in printed()] == ["0.weight", "0.bias"] * 2


def test_a_frozen_cell_prints_too(mode, printed):
    net = three()
    mg.wrap(net, "0", wrapper=mg.PrintWeights)
    mg.freeze(net, "0")
    step = training(net)
    step(X)
    assert [name for name, _ in printed()] == ["0.weight", "0.bias"]
    net.set_train(False)(X)
    assert printed() == []


def test_one_that_prints_each_time_adds_no_counter_to_the_graph():
    always, sometimes = (mg.PrintWeights(dense(2, 2), every=n).set_train() for n in (1, 2))
    assert compiled_graph(always, X).parameters[1:] == ("weight", "bias")
    assert len(compiled_graph(sometimes, X).parameters[1:]) == 3


def test_all_parameters_inside_the_cell_are_printed_under_the_names_of_the_moment(printed):
    net = nn.SequentialCell(Around(nn.BatchNorm1d(2)))
    mg.wrap(net, "0", wrapper=mg.PrintWeights)
    net[0].inner.gamma.name = "renamed"
    net.set_train()(X)
    names = [name for name, _ in printed()]
    assert names == ["0.inner.moving_mean", "0.inner.moving_variance", "renamed", "0.inner.beta"]


def test_a_copy_counts_by_itself_even_in_one_graph(mode, printed):
    first = mg.PrintWeights(dense(2, 2), every=3).set_train()
    first(X)
    both = nn.SequentialCell(first, copy.deepcopy(first)).set_train()
    assert len(printed()) == 2
    first(X)
    names = []
    for _ in range(3):
        both(X)
        names.append([name for name, _ in printed()])
    assert names == [[], ["0.weight", "0.bias"], ["1.weight", "1.bias"]]


@pytest.mark.parametrize("every", [1, 2])
def test_printing_changes_no_value_and_no_name(mode, printed, every):
    plain, net = three(), three()
    mg.wrap(net, nn.Dense, wrapper=lambda cell: mg.PrintWeights(cell, every=every))
    assert [p.name for p in net.get_parameters()] == [p.name for p in plain.get_parameters()]
    for step in (training(plain), training(net)):
        step(X)
    assert [bits_of(p) for p in net.get_parameters()] == [
        bits_of(p) for p in plain.get_parameters()
    ]
    assert len(printed()) == 4


@pytest.mark.parametrize(
    ("every", "error", "message"),
    [
        pytest.param(0, mg.ArgumentError, "every 0 is less than 1", id="zero"),
        pytest.param(-3, mg.ArgumentError, "every -3 is less than 1", id="negative"),
        pytest.param(True, mg.ArgumentTypeError, "every True is a bool; give", id="bool"),
        pytest.param(1.0, mg.ArgumentTypeError, "every 1.0 is a float", id="float"),
        pytest.param("2", mg.ArgumentTypeError, "every '2' is a str", id="str"),
    ],
)
def test_every_is_a_positive_integer(every, error, message):
    with pytest.raises(error, match=message):
        mg.PrintWeights(dense(2, 2), every=every)


def test_a_cell_without_parameters_has_nothing_to_print():
    with pytest.raises(mg.ArgumentError, match="cell ReLU has no parameters to print"):
        mg.PrintWeights(nn.ReLU())
