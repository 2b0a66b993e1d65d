"""A compiled graph as data, and what it says of a stop: wrapped and by hand, the same operators."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

import msgrad as mg
from msgrad.backend import Graph, Node, compiled_graph
from tests.nets.wrapped_nets import Convolutions, Helper, X, bits_of, dense


def test_the_graph_lists_operators_with_what_feeds_them(mode):
    graph = compiled_graph(dense(2, 2), X)
    assert graph.operators["MatMul"] == graph.operators["BiasAdd"] == 1
    assert graph.operators["ReLU"] == 0
    assert graph.parameters == ("x", "weight", "bias")
    by_name = {node.name: node for node in graph.nodes}
    product = next(node for node in graph.nodes if node.op_type == "MatMul")
    loaded = by_name[product.inputs[1]]
    assert product.inputs[0] == "x"
    assert (loaded.op_type, loaded.inputs[0]) == ("Load", "weight")
    assert set(graph.outputs) <= set(by_name)


def test_it_says_how_often_each_operator_occurs():
    graph = Graph((Node("1", "Mul", ("x",)), Node("2", "Mul", ("1",))), ("x",), ("2",))
    assert dict(graph.operators) == {"Mul": 2}


def test_compiling_runs_nothing_and_leaves_no_trace(mode):
    net = dense(2, 2)
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.5))
    before, current = bits_of(net.weight), ms.get_context("mode")
    assert compiled_graph(step, X).operators["SGD"] == 2
    assert bits_of(net.weight) == before
    assert not step.compile_cache
    assert ms.get_context("mode") == current


def test_what_was_compiled_before_is_neither_used_nor_lost():
    net = nn.SequentialCell(dense(2, 2))
    net(X)
    kept = set(net.compile_cache)
    net[0].activation = nn.ReLU()
    net[0].activation_flag = True
    assert compiled_graph(net, X).operators["ReLU"] == 1
    assert net.compile_cache == kept


def test_the_mode_is_restored_where_the_cell_does_not_compile():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    with pytest.raises((ValueError, RuntimeError), match=r"(?i)matmul"):
        compiled_graph(Helper(), Tensor(np.ones((3, 3), np.float32)))
    assert ms.get_context("mode") == ms.PYNATIVE_MODE


# --- the same graph as one edited by hand


def training_graph(net: nn.Cell) -> dict[str, int]:
    """What operators a step of SGD over the trainable parameters compiles to, and how many."""
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1))
    return dict(compiled_graph(step, Tensor(np.ones((1, 1, 4, 4), np.float32))).operators)


@pytest.mark.parametrize(
    ("by_hand", "pattern", "at"),
    [("conv1", "conv1", "output"), ("norm", "norm", "output"), ("norm", "conv2", "input")],
)
def test_a_wrapped_stop_compiles_to_the_operators_of_one_written_by_hand(by_hand, pattern, at):
    net = Convolutions()
    plain = training_graph(net)
    mg.stop_gradient(net, pattern, at=at)
    wrapped = training_graph(net)
    assert wrapped == training_graph(Convolutions(stop=by_hand))
    assert wrapped != plain
    assert plain["Conv2DBackpropFilter"] - wrapped.get("Conv2DBackpropFilter", 0) == 1


def test_taking_the_stop_off_gives_the_plain_operators_back():
    net = Convolutions()
    plain = training_graph(net)
    mg.stop_gradient(net, "conv1")
    mg.unwrap(net)
    assert training_graph(net) == plain
