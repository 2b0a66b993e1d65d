"""A TrainStep inside other graphs, copied, cast and with inputs of varying size."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, amp, nn, ops

import msgrad as mg
from msgrad.backend import latches
from tests.nets.step_nets import Line, ScaledStep, X, step_over, weights_of

WHOLE = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def sgd(parameters: list) -> nn.Cell:
    return nn.SGD(parameters, 0.5)


# --- inside a graph around it


class Around(nn.Cell):
    def __init__(self, step: mg.TrainStep) -> None:
        super().__init__(auto_prefix=False)
        self.step = step

    def construct(self, x: Tensor) -> Tensor:
        return self.step(x)


@pytest.mark.usefixtures("mode")
def test_under_jit_it_takes_what_is_frozen_when_it_is_compiled_and_warns(
    caplog: pytest.LogCaptureFixture,
):
    net = Line()
    step = step_over(net, sgd)

    @ms.jit
    def train(x: Tensor) -> Tensor:
        return step(x)

    mg.freeze(net, "{b,c}")
    if latches():
        with pytest.raises(AttributeError, match="ready_for_graph"):
            train(X)
        assert "inside ms.jit does not notice a freeze" in caplog.text
        assert weights_of(net) == WHOLE
        return
    with caplog.at_level(logging.WARNING, "msgrad"):
        train(X)
        train(X)
    # twice the gradient of `a`, which is x
    assert weights_of(net) == [[1 - 1.0, 2 - 2.0], [3, 4], [5, 6]]
    told = [r.getMessage() for r in caplog.records if "graph around it" in r.getMessage()]
    assert len(told) == 1
    assert "call the step itself" in told[0]


def test_in_a_cell_around_it_a_stage_before_the_compilation_counts_and_state_goes_along():
    net = Line()
    step = step_over(net)
    mg.freeze(net, "{a,c}")
    step(X)
    assert weights_of(net) == [[1, 2], [3 - 0.5, 4 - 1.0], [5, 6]]
    mg.unfreeze(net, "a")
    Around(step)(X)
    # momentum 0.5 at rate 0.25: the second step of `b` is 1.5 times its first
    assert weights_of(net) == [[1 - 0.25, 2 - 0.5], [3 - 0.5 - 0.75, 4 - 1.0 - 1.5], [5, 6]]
    assert step.stages == [["b.weight"], ["a.weight", "b.weight"]]


# --- copied


def test_it_cannot_be_copied_and_says_what_can():
    step = step_over(Line(), sgd)
    with pytest.raises(mg.ArgumentError, match=r"cannot be copied, .* copy the network and make"):
        copy.deepcopy(step)


def test_a_copied_network_keeps_its_freeze_and_trains_apart_from_the_first():
    net = Line()
    mg.freeze(net, "{b,c}")
    twin = copy.deepcopy(net)
    step_over(twin, sgd)(X)
    assert weights_of(twin) == [[0.5, 1.0], [3, 4], [5, 6]]
    assert weights_of(net) == WHOLE


# --- cast


def cast(level: str):
    def train_cell(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return amp.build_train_network(network, optimizer, level=level, loss_scale_manager=None)

    return train_cell


def network() -> nn.Cell:
    return nn.SequentialCell(nn.Dense(2, 2), nn.BatchNorm1d(2))


def test_a_train_cell_that_exchanges_cells_of_the_network_is_refused():
    with pytest.raises(mg.ArgumentError, match=r"put _OutputTo16 in the place of BatchNorm1d in"):
        mg.TrainStep(network(), sgd, nn.MSELoss(), train_cell=cast("O2"))


def test_a_train_cell_that_only_casts_is_taken():
    step = mg.TrainStep(network(), sgd, nn.MSELoss(), train_cell=cast("O3"))
    assert step.trainable == ["0.weight", "0.bias", "1.gamma", "1.beta"]


# --- a loss scale in the train cell


def test_a_saved_run_goes_on_with_its_loss_scale():
    step, again = (step_over(Line(), sgd, train_cell=ScaledStep) for _ in range(2))
    ops.assign(step.inner.scaler.scale_value, Tensor(4096.0, ms.float32))
    step.save("run.ckpt")
    again.load("run.ckpt")
    assert float(again.inner.scaler.scale_value.asnumpy()) == 4096.0
    assert "scale_value" in mg.load_weights(Line(), "run.ckpt").state


# --- inputs of varying size


def rows(count: int) -> tuple[Tensor, Tensor]:
    ones = np.ones((count, 2), np.float32)
    return Tensor(ones), Tensor(ones)


@pytest.mark.parametrize("around", [None, "before_forward"])
def test_with_open_dimensions_one_graph_of_a_stage_serves_all_sizes(around: str | None):
    net = nn.SequentialCell(nn.Dense(2, 2, "ones"), nn.Dense(2, 2, "ones"))
    updates = around and mg.WeightUpdates(net, {"1.bias": mg.rules.multiply(0.5)}, around)
    step = step_over(net, sgd, loss_fn=nn.MSELoss(), updates=updates)
    mg.freeze(net, "0")
    step.set_inputs(*[Tensor(shape=[None, 2], dtype=ms.float32) for _ in "xy"])
    before = mg.Snapshot(net)
    for count in (1, 2, 3):
        step(*rows(count))
    assert before.moved() == ["1.weight", "1.bias"]
    assert step.compilations == 1
    mg.unfreeze(net, "0")
    for count in (3, 4):
        step(*rows(count))
    assert set(before.moved()) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert step.compilations == 2


def test_an_input_of_varying_size_has_no_name():
    step = step_over(Line(), sgd)
    with pytest.raises(mg.ArgumentError, match=r"input 'x' is given by name; give one Tensor per"):
        step.set_inputs(x=Tensor(shape=[None], dtype=ms.float32))


# --- weights that are sharded while a graph is compiled


@pytest.fixture(params=["semi_auto_parallel", "auto_parallel"])
def sharded(request: pytest.FixtureRequest) -> Iterator[str]:
    ms.set_auto_parallel_context(parallel_mode=request.param)
    yield request.param
    ms.reset_auto_parallel_context()


def test_where_weights_are_sharded_it_does_not_look_for_the_reach(sharded: str):
    step = step_over(Line(), sgd, unreached="freeze")
    with pytest.raises(mg.ArgumentError, match=rf"'{sharded}' shards .*; give TrainStep unreached"):
        step(X)
    assert step.compilations == 0


def test_where_weights_are_sharded_a_second_stage_is_refused(sharded: str):
    net = Line()
    step = step_over(net, sgd)
    mg.freeze(net, "a")
    step.prepare(runs=True)
    assert step.trainable == ["b.weight", "c.weight"]
    mg.freeze(net, "b")
    with pytest.raises(mg.ArgumentError, match=rf"'{sharded}' shards .*; freeze before the first"):
        step.prepare(runs=True)
