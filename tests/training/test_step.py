"""TrainStep: what moves, what stays, and when it notices; the whole table is in test_contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

import msgrad as mg
from msgrad.backend import compiled_graph
from tests.nets.step_nets import (
    AccumulatingStep,
    Judged,
    Line,
    Pair,
    ScaledStep,
    Trap,
    TwoInputs,
    TwoInputsAndLoss,
    X,
    assert_close,
    batches,
    decaying,
    mean_square,
    momentum,
    moved,
    step_over,
    values_of,
    weights_of,
)

pytestmark = pytest.mark.usefixtures("mode")


# What moves and what stays


def test_a_stopped_backbone_stays_under_decay_and_the_head_trains_as_if_alone():
    net, plain = Trap(), Trap()
    mg.stop_gradient(net, "alphabeta")
    step = mg.TrainStep(net, decaying).set_train()
    cell = nn.TrainOneStepCell(plain, decaying([plain.head.weight])).set_train()
    before = values_of(net)
    for batch in batches(10):
        step(*batch)
        cell(*batch)
    assert moved(net, before) == ["head.weight"]
    assert_close(net, plain)


def test_frozen_after_three_steps_stays_from_the_very_next_one_for_fifty():
    net = Trap()
    step = step_over(net, decaying)
    for batch in batches(3):
        step(*batch)
    mg.freeze(net, "encoder", "alphabeta")
    before = values_of(net)
    step(*batches(1)[0])
    assert moved(net, before) == ["head.weight"]
    for batch in batches(49):
        step(*batch)
    assert moved(net, before) == ["head.weight"]


def test_a_flag_flipped_by_hand_counts_from_the_next_call_both_ways():
    net = Line()
    step = step_over(net)
    net.b.weight.requires_grad = False
    net.c.weight.requires_grad = False
    step(X)
    assert weights_of(net) == [[0.75, 1.5], [3.0, 4.0], [5.0, 6.0]]
    net.a.weight.requires_grad = False
    net.b.weight.requires_grad = True
    step(X)
    # the velocity of `b` starts at zero: 3 - 0.25 * 2 and 4 - 0.25 * 4
    assert weights_of(net) == [[0.75, 1.5], [2.5, 3.0], [5.0, 6.0]]
    assert step.stages == [["a.weight"], ["b.weight"]]


def test_a_weight_released_later_starts_fresh_and_the_others_keep_their_velocity():
    net = Line()
    mg.freeze(net, "b", "c")
    step = step_over(net)
    step(X)
    mg.unfreeze(net, "b")
    step(X)
    # a: velocities 1 and 1 + 0.5 * 1; b: 2 for the first time
    assert weights_of(net) == [[1 - 0.25 - 0.375, 2 - 0.5 - 0.75], [2.5, 3.0], [5.0, 6.0]]


def test_the_norm_that_clips_counts_the_trained_gradients_only():
    net = Line()
    mg.freeze(net, "c")  # its gradient is a thousand times as large
    step = step_over(net, lambda p: nn.SGD(p, 1.0), clip_norm=1.0)
    step(X)
    norm = np.sqrt(1 + 4 + 4 + 16)
    np.testing.assert_allclose(weights_of(net)[0], [1 - 1 / norm, 2 - 2 / norm], rtol=1e-6)
    np.testing.assert_allclose(weights_of(net)[1], [3 - 2 / norm, 4 - 4 / norm], rtol=1e-6)
    assert weights_of(net)[2] == [5.0, 6.0]


def _held(parameters: list[Parameter]) -> nn.Cell:
    return mg.HoldOptimizer(nn.SGD(parameters, 1.0))


def _two(parameters: list[Parameter]) -> list[nn.Cell]:
    # the gradient of c, which is held, is in the second
    return [nn.SGD(parameters[:1], 1.0), mg.HoldOptimizer(nn.SGD(parameters[1:], 1.0))]


@pytest.mark.parametrize("make", [_held, _two], ids=["one", "one-of-two"])
def test_the_norm_that_clips_leaves_out_what_is_held(make: Callable[..., Any]):
    net = Line()
    step = step_over(net, make, clip_norm=1.0)
    hold = step.optimizer if make is _held else step.optimizer.optimizers[1]
    hold.hold("c")
    step(X)
    norm = np.sqrt(1 + 4 + 4 + 16)
    np.testing.assert_allclose(weights_of(net)[0], [1 - 1 / norm, 2 - 2 / norm], rtol=1e-6)
    np.testing.assert_allclose(weights_of(net)[1], [3 - 2 / norm, 4 - 4 / norm], rtol=1e-6)
    assert weights_of(net)[2] == [5.0, 6.0]
    # one of two rows: 1000 of the other counts, and 2000 of this one does not
    hold.release("c")
    hold.hold_rows("c", [1])
    before = weights_of(net)
    step(X)
    norm = np.sqrt(25 + 1000**2)
    np.testing.assert_allclose(weights_of(net)[2], [5 - 1000 / norm, 6.0], rtol=1e-6)
    np.testing.assert_allclose(np.subtract(before[0], weights_of(net)[0]) * norm, [1, 2], 1e-2)
    assert weights_of(net)[2][1] == 6.0
    hold.release_rows("c")
    before = weights_of(net)
    step(X)
    norm = np.sqrt(25 + 1000**2 + 2000**2)
    moved = np.subtract(before[2], weights_of(net)[2])
    np.testing.assert_allclose(moved, [1000 / norm, 2000 / norm], rtol=1e-5)


def test_a_norm_below_the_limit_clips_nothing():
    net = Line()
    mg.freeze(net, "b", "c")
    step_over(net, lambda p: nn.SGD(p, 0.25), clip_norm=3.0)(X)
    np.testing.assert_allclose(weights_of(net)[0], [0.75, 1.5], rtol=1e-6)


def test_a_wrapper_changed_after_the_first_step_counts_from_the_next():
    net = Line()
    step = step_over(net, lambda p: nn.SGD(p, 0.25), trainable="a")
    step(X)
    mg.scale_gradient(net, "a", scale=0.5)
    step(X)
    assert weights_of(net) == [[1 - 0.25 - 0.125, 2 - 0.5 - 0.25], [3.0, 4.0], [5.0, 6.0]]
    mg.unwrap(net)
    mg.stop_gradient(net, "a")
    step(X)
    assert weights_of(net) == [[1 - 0.25 - 0.125, 2 - 0.5 - 0.25], [3.0, 4.0], [5.0, 6.0]]
    mg.unwrap(net)
    mg.stop_gradient(net, "a", at="input")  # of its weight, nothing is cut off
    step(X)
    assert weights_of(net) == [[1 - 0.5 - 0.125, 2 - 1.0 - 0.25], [3.0, 4.0], [5.0, 6.0]]


def test_statistics_made_trainable_by_a_blanket_flag_never_enter_the_optimizer():
    net = nn.SequentialCell(nn.Dense(4, 3), nn.BatchNorm1d(3), nn.Dense(3, 2))
    for parameter in net.get_parameters():
        parameter.requires_grad = True
    step = step_over(net, decaying, loss_fn=nn.MSELoss())
    assert step.trainable == ["0.weight", "0.bias", "1.gamma", "1.beta", "2.weight", "2.bias"]


# Three ways to give the network


def test_a_network_with_a_loss_and_several_inputs_equals_plain_mindspore():
    net, plain = TwoInputs(), TwoInputs()
    step = mg.TrainStep(net, decaying, mean_square).set_train()
    cell = nn.TrainOneStepCell(TwoInputsAndLoss(plain), decaying(plain.trainable_params()))
    cell.set_train()
    before = values_of(net)
    for x, label in batches():
        assert np.allclose(step(x, x * 2, label).asnumpy(), cell(x, x * 2, label).asnumpy())
    assert moved(net, before) == list(before)
    assert_close(net, plain)


def test_a_function_with_its_network_equals_plain_mindspore():
    net, plain = TwoInputs(), TwoInputs()

    def loss(x: Tensor, z: Tensor, label: Tensor) -> Tensor:
        return mean_square(net(x, z), label)

    step = mg.TrainStep(loss, decaying, net=net).set_train()
    mg.freeze(net, "left")
    rest = [p for p in plain.get_parameters() if p.name.startswith("right")]
    cell = nn.TrainOneStepCell(TwoInputsAndLoss(plain), decaying(rest)).set_train()
    before = values_of(net)
    for x, label in batches():
        step(x, x * 2, label)
        cell(x, x * 2, label)
    assert moved(net, before) == ["right.weight", "right.bias"]
    assert_close(net, plain)


def test_a_frozen_set_under_a_functional_loop_equals_the_step():
    net, plain = Trap(), Trap()
    mg.freeze(net, "alphabeta")
    rest = [p for p in plain.get_parameters() if not p.name.startswith("alphabeta")]
    optimizer = momentum(rest)
    gradient = ms.value_and_grad(plain, None, optimizer.parameters)
    step = step_over(net)
    before = values_of(net)
    for batch in batches():
        step(*batch)
        optimizer(gradient(*batch)[1])
    assert moved(net, before) == [p.name for p in rest]
    assert_close(net, plain)


# Narrower steps and the user's train cells


def test_two_steps_of_a_pair_train_one_side_each_and_leave_the_flags(mode: str):
    net, plain = Pair(), Pair()
    sides = [("generator", 1.0), ("discriminator", -1.0)]
    steps = [step_over(Judged(net, sign), decaying, trainable=side) for side, sign in sides]
    cells = [
        nn.TrainOneStepCell(Judged(plain, sign), decaying(getattr(plain, side).trainable_params()))
        for side, sign in sides
    ]
    for x, _ in batches():
        for step, cell, (side, _) in zip(steps, cells, sides, strict=True):
            before = values_of(net)
            step(x)
            cell.set_train()(x)
            assert moved(net, before) == [f"{side}.weight", f"{side}.bias"]
    assert_close(net, plain)
    assert all(p.requires_grad for p in net.get_parameters())
    assert [step.compilations for step in steps] == ([1, 1] if mode == "graph" else [0, 0])


def test_a_frozen_layer_stays_in_the_step_that_would_take_it():
    net = Pair()
    mg.freeze(net, "generator.bias")
    step = step_over(Judged(net, 1.0), trainable="generator")
    before = values_of(net)
    step(batches(1)[0][0])
    assert moved(net, before) == ["generator.weight"]


def test_a_loss_scale_keeps_what_is_frozen_and_leaves_out_the_step_that_overflows():
    net, plain = Trap(), Trap()
    mg.freeze(net, "alphabeta")
    rest = [p for p in plain.get_parameters() if not p.name.startswith("alphabeta")]
    step = step_over(net, decaying, train_cell=ScaledStep)
    cell = nn.TrainOneStepCell(plain, decaying(rest)).set_train()
    first, second, third = batches()
    before = values_of(net)
    step(*first)
    middle = values_of(net)
    step(second[0], second[1] * float("inf"))
    assert moved(net, middle) == []
    assert int(step.inner.skipped.asnumpy()) == 1
    step(*third)
    cell(*first)
    cell(*third)
    assert moved(net, before) == [p.name for p in rest]
    assert_close(net, plain)


def test_gradients_summed_over_two_calls_go_along_when_the_stage_changes_between_them():
    net = Line()
    mg.freeze(net, "b", "c")
    step = step_over(net, lambda p: nn.SGD(p, 0.25), train_cell=AccumulatingStep)
    step(X)
    assert weights_of(net)[0] == [1.0, 2.0]
    mg.unfreeze(net, "b")
    step(X)
    # a: the mean of two gradients; b: half of its one
    assert weights_of(net) == [[0.75, 1.5], [2.75, 3.5], [5.0, 6.0]]
    step(X)
    step(X)
    assert weights_of(net) == [[0.5, 1.0], [2.25, 2.5], [5.0, 6.0]]


# The graph


@pytest.mark.parametrize(
    ("stop", "names"),
    [
        pytest.param(False, ("alphabeta.weight", "head.weight"), id="frozen"),
        pytest.param(True, ("head.weight",), id="stopped"),
    ],
)
def test_the_graph_of_a_stage_is_that_of_plain_mindspore_over_the_same_set(
    stop: bool, names: tuple[str, ...]
):
    net, plain = Trap(), Trap()
    if stop:
        mg.stop_gradient(net, "alphabeta")
    else:
        mg.freeze(net, "encoder")
    step = mg.TrainStep(net, decaying).set_train()
    batch = batches(1)[0]
    before = values_of(net)
    step(*batch)
    assert moved(net, before) == list(names)
    rest = [p for p in plain.get_parameters() if p.name in names]
    cell = nn.TrainOneStepCell(plain, decaying(rest)).set_train()
    everything = nn.TrainOneStepCell(plain, decaying(plain.trainable_params())).set_train()
    operators = compiled_graph(step.inner, *batch).operators
    operators.pop("StopGradient", None)
    assert operators == compiled_graph(cell, *batch).operators
    assert operators != compiled_graph(everything, *batch).operators
