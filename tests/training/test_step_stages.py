"""The stages of a TrainStep: what is left out, what is compiled, and what a failure leaves."""

from __future__ import annotations

import logging

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, nn, ops

import msgrad as mg
from tests.nets.step_nets import (
    Dropped,
    Line,
    Spare,
    Trap,
    X,
    batches,
    mean_square,
    momentum,
    moved,
    step_over,
    values_of,
    weights_of,
)

pytestmark = pytest.mark.usefixtures("mode")

OLD = tuple(map(int, ms.__version__.split(".")[:2])) < (2, 8)
UNUSED = ["unused.weight", "unused.bias"]


# What no gradient reaches


def test_an_unused_layer_is_named_once_and_stays_under_decay_and_momentum(
    caplog: pytest.LogCaptureFixture,
):
    net = Spare()
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1, weight_decay=0.1, momentum=0.9)).set_train()
    before = values_of(net)
    with caplog.at_level(logging.WARNING, "msgrad"):
        for batch in batches(3):
            step(*batch)
        mg.freeze(net, "first")
        step(*batches(1)[0])
    assert [r.getMessage() for r in caplog.records] == [
        "no gradient reaches 2 parameters, left out of the optimizer: unused.weight, unused.bias"
    ]
    assert moved(net, before) == [n for n in before if n not in UNUSED]


def test_an_unused_layer_that_is_released_later_is_named_then(caplog: pytest.LogCaptureFixture):
    net = Spare()
    mg.freeze(net, "unused")
    step = mg.TrainStep(net, momentum).set_train()
    with caplog.at_level(logging.WARNING, "msgrad"):
        step(*batches(1)[0])
        assert not caplog.records
        mg.unfreeze(net)
        step(*batches(1)[0])
    assert "left out of the optimizer: unused.weight" in caplog.text
    assert not set(UNUSED) & set(step.trainable)


def test_a_layer_that_only_training_uses_trains_from_set_train_on():
    net = Spare()
    step = mg.TrainStep(net, momentum)
    step(*batches(1)[0])
    assert step.trainable == ["first.weight", "first.bias", "last.weight", "last.bias"]
    step.set_train()
    before = values_of(net)
    step(*batches(1)[0])
    assert moved(net, before) == [n for n in before if n not in UNUSED]


def test_unreached_error_names_the_weights_and_changes_nothing():
    net = Spare()
    step = mg.TrainStep(net, momentum, unreached="error").set_train()
    before = values_of(net)
    with pytest.raises(
        mg.ConflictError,
        match=r"2 of 8 trainable parameters get no gradient: unused\.weight, unused\.bias; freeze",
    ):
        step(*batches(1)[0])
    assert moved(net, before) == []
    mg.freeze(net, "unused")
    step(*batches(1)[0])
    assert moved(net, before) == [n for n in before if n not in UNUSED]


def test_unreached_allow_leaves_decay_to_the_optimizer_as_mindspore_does():
    net = Spare()
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.5, weight_decay=0.5), unreached="allow")
    before = values_of(net)
    step.set_train()(*batches(1)[0])
    np.testing.assert_allclose(
        net.unused.weight.asnumpy(), before["unused.weight"] * (1 - 0.5 * 0.5), rtol=1e-6
    )


def test_a_network_stopped_at_its_end_has_nothing_left_to_train():
    net = nn.SequentialCell(nn.Dense(4, 2))
    mg.stop_gradient(net, "0")
    step = mg.TrainStep(net, momentum, mean_square).set_train()
    with pytest.raises(ValueError, match=r"nothing is left .* 2 that no gradient reaches"):
        step(*batches(1)[0])


# Stages and compilations


def test_going_back_compiles_nothing_and_a_new_shape_counts_one(mode: str):
    net = Trap()
    step = step_over(net)
    every = list(step.trainable)
    for _ in range(2):
        step(*batches(1)[0])
        with mg.freeze(net, "encoder"):
            step(*batches(1)[0])
    assert step.stages == [every, ["alphabeta.weight", "head.weight"]]
    assert step.compilations == (2 if mode == "graph" else 0)
    step(*batches(1, rows=5)[0])
    assert step.compilations == (3 if mode == "graph" else 0)
    assert step.position == (5, 0)
    assert step.trainable == every


def test_asking_what_trains_before_a_step_changes_nothing_of_the_run(mode: str):
    net, asked = Line(), Line()

    def changed(line: Line, number: int) -> mg.TrainStep:
        if number == 4:  # another graph; what a gradient reaches is unknown until the call
            mg.scale_gradient(line, "a", scale=0.5)
        elif number:
            (mg.freeze if number % 2 else mg.unfreeze)(line, "b")
        else:
            mg.stop_gradient(line, "c")
            step = mg.TrainStep(line, adam, restart_counters=True, restart_state=True)
            steps[id(line)] = step.set_train()
        return steps[id(line)]

    steps: dict[int, mg.TrainStep] = {}
    for number in range(6):
        changed(net, number)(X)
        step = changed(asked, number)
        assert {"a.weight"} <= set(step.trainable)
        step(X)
    assert weights_of(asked) == weights_of(net)
    assert step.stages == steps[id(net)].stages == [["a.weight", "b.weight"], ["a.weight"]]
    assert step.compilations == (3 if mode == "graph" else 0)


def adam(parameters: list[Parameter]) -> nn.Cell:
    return nn.Adam(parameters, 0.1)


def test_evaluation_in_between_is_a_stage_of_its_own_and_training_goes_on(mode: str):
    net = Dropped()
    step = step_over(net, lambda p: nn.SGD(p, 0.0))
    batch = batches(1)[0]
    plain = float(Dropped()(*batch).asnumpy())
    random = {float(step(*batch).asnumpy()) for _ in range(4)}
    step.set_train(False)
    assert np.allclose([float(step(*batch).asnumpy()) for _ in range(2)], plain, rtol=1e-6)
    step.set_train()
    random |= {float(step(*batch).asnumpy()) for _ in range(4)}
    assert len(random) > 4
    assert step.compilations == (2 if mode == "graph" else 0)


def test_an_optimizer_that_cannot_be_made_leaves_the_step_as_it_was():
    net = Line()
    broken = []

    def optimizer(parameters: list[Parameter]) -> nn.Cell:
        if broken:
            raise RuntimeError("no memory")
        return momentum(parameters)

    step = step_over(net, optimizer, trainable=["a", "b"])
    step(X)
    broken.append(True)
    frozen = mg.freeze(net, "b")
    with pytest.raises(RuntimeError, match="no memory"):
        step(X)
    with pytest.raises(RuntimeError, match="no memory"):
        step(X)
    frozen.undo()
    assert step.trainable == ["a.weight", "b.weight"]
    assert step.position.step == 1
    step(X)
    # velocities 1 and 1.5, twice as large for b
    assert weights_of(net) == [[0.375, 0.75], [1.75, 1.5], [5.0, 6.0]]


def test_everything_frozen_in_the_middle_of_a_run_is_refused_and_can_be_undone():
    net = Line()
    step = step_over(net, trainable=["a", "b"])
    step(X)
    before = values_of(net)
    frozen = mg.freeze(net, "*")
    with pytest.raises(ValueError, match=r"of 3 parameters: 3 frozen by freeze\('\*'\); unfreeze"):
        step(X)
    assert moved(net, before) == []
    frozen.undo()
    step(X)
    assert moved(net, before) == ["a.weight", "b.weight"]


# MindSpore 2.7 in PYNATIVE_MODE: a flag is read once, at the first gradient of its parameter


@pytest.mark.skipif(not OLD, reason="MindSpore 2.8 and later read a flag at every gradient")
def test_a_step_of_the_users_own_that_latched_a_flag_is_found_and_refused(mode: str):
    if mode == "graph":
        pytest.skip("GRAPH_MODE never latches a flag")
    net = Line()
    net.a.weight.requires_grad = False
    ops.GradOperation(get_by_list=True)(net, [net.a.weight, net.b.weight])(X)
    net.a.weight.requires_grad = True
    with pytest.raises(
        mg.ConflictError, match=r"keeps 1 parameters at a zero gradient.*: a\.weight; build the"
    ):
        step_over(net)
    assert all(p.requires_grad for p in net.get_parameters())
