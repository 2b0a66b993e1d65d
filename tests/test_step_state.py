"""What goes along when a TrainStep changes its stage: optimizer state, counters, rates."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.experimental import optim

import msgrad as mg
from msgrad._graph import compiled_graph
from tests.step_nets import (
    Line,
    Trap,
    X,
    batches,
    decaying,
    momentum,
    moved,
    step_over,
    values_of,
    weights_of,
)

pytestmark = pytest.mark.usefixtures("mode")


def state_of(step: mg.TrainStep) -> dict[str, np.ndarray]:
    weights = {id(p) for p in step.optimizer.parameters}
    return {
        p.name: p.asnumpy().copy() for p in step.optimizer.get_parameters() if id(p) not in weights
    }


def first_adam_step(rate: float, after: int) -> float:
    """Return the length of a weight's first step, by Adam's formula, after steps without it."""
    count = after + 1
    return rate * (1 - 0.9) / (1 - 0.9**count) * np.sqrt((1 - 0.999**count) / (1 - 0.999))


# Optimizer state


def test_a_weight_released_again_continues_with_its_velocity():
    net = Line()
    step = step_over(net, trainable=["a", "b"])
    step(X)
    mg.freeze(net, "b")
    step(X)
    mg.unfreeze(net)
    step(X)
    # b: velocities 2 and 2 + 0.5 * 2, the call in between left out
    assert weights_of(net)[1] == [3 - 0.5 - 0.75, 4 - 1.0 - 1.5]
    assert weights_of(net)[0] == [1 - 0.25 - 0.375 - 0.4375, 2 - 0.5 - 0.75 - 0.875]


def test_restart_state_lets_a_released_weight_begin_anew_and_no_other():
    net = Line()
    step = step_over(net, trainable=["a", "b"], restart_state=True)
    step(X)
    mg.freeze(net, "b")
    step(X)
    mg.unfreeze(net)
    assert len(step.trainable) == 2
    step(X)
    assert weights_of(net)[1] == [3 - 0.5 - 0.5, 4 - 1.0 - 1.0]
    assert weights_of(net)[0] == [1 - 0.25 - 0.375 - 0.4375, 2 - 0.5 - 0.75 - 0.875]


def test_what_is_frozen_takes_no_state_and_its_group_is_gone():
    def grouped(parameters: list[Parameter]) -> nn.Cell:
        groups = [
            {"params": [p for p in parameters if p.name.startswith(name)], "lr": rate}
            for name, rate in (("a", 0.1), ("b", 0.2), ("c", 0.3))
        ]
        return nn.Adam([g for g in groups if g["params"]], 0.5)

    net = Line()
    mg.freeze(net, "a", "b")
    step = step_over(net, grouped)
    step(X)
    assert {n for n in state_of(step) if n.endswith("weight")} == {
        "moment1.c.weight",
        "moment2.c.weight",
    }
    assert float(step.optimizer.get_lr()[0].asnumpy()) == np.float32(0.3)


def test_momentum_of_a_weight_that_a_stop_cut_off_is_there_when_the_stop_is_gone():
    net = Line()
    step = mg.TrainStep(net, momentum, trainable=["a", "b"]).set_train()
    step(X)
    mg.freeze(net, "a")
    step(X)
    mg.unfreeze(net)
    mg.stop_gradient(net, "b")
    # a stage is looked at before the reach is known, and never run
    assert step.trainable == ["a.weight", "b.weight"]
    step(X)
    assert step.trainable == ["a.weight"]
    mg.unwrap(net)
    step(X)
    # b: velocities 2, 3, and 2 + 0.5 * 3
    assert weights_of(net)[1] == [3 - 0.5 - 0.75 - 0.875, 4 - 1.0 - 1.5 - 1.75]


def test_the_parameters_of_the_step_have_the_names_of_a_plain_train_cell():
    net, plain = Trap(), Trap()
    step = step_over(net, decaying)
    step(*batches(1)[0])
    mg.freeze(net, "encoder")
    step(*batches(1)[0])
    rest = [p for p in plain.get_parameters() if not p.name.startswith("encoder")]
    cell = nn.TrainOneStepCell(plain, decaying(rest))
    # in another order: MindSpore lists the optimizer's weights first
    names = sorted(p.name for p in step.get_parameters())
    assert names == sorted(p.name for p in cell.get_parameters())


# Counters


@pytest.mark.parametrize(("restart", "after"), [(False, 6), (True, 0)], ids=["go-on", "restart"])
def test_the_first_adam_step_of_a_new_weight_depends_on_the_shared_counters(
    restart: bool, after: int
):
    net = Line()
    mg.freeze(net, "b", "c")
    step = step_over(net, lambda p: nn.Adam(p, 0.1, eps=1e-20), restart_counters=restart)
    for _ in range(6):
        step(X)
    mg.unfreeze(net, "b")
    step(X)
    np.testing.assert_allclose(3 - weights_of(net)[1][0], first_adam_step(0.1, after), rtol=1e-4)


def test_restarted_counters_leave_the_step_that_a_schedule_reads():
    net = Line()
    rates = [0.5, 0.25, 0.125, 0.0625]
    step = step_over(net, lambda p: nn.SGD(p, rates), trainable=["a"], restart_counters=True)
    step(X)
    mg.unfreeze(net)
    step(X)
    with mg.freeze(net, "b"):
        step(X)
    assert weights_of(net)[0][0] == 1 - 0.5 - 0.25 - 0.125


def test_counters_restart_from_the_beginning_in_a_stage_that_came_later_to_its_optimizer():
    net = Line()
    mg.freeze(net, "b", "c")
    step = step_over(net, lambda p: nn.Adam(p, 0.1, eps=1e-20), restart_counters=True)
    for _ in range(3):
        step(X)
    step.set_train(False)  # another stage over the same weights
    step(X)
    mg.unfreeze(net, "b")
    step(X)
    mg.freeze(net, "b")
    assert step.trainable == ["a.weight"]
    step(X)
    # one step since the restart; beta1_power is that of the first
    assert float(state_of(step)["beta1_power"]) == np.float32(0.9)


# Learning rates


def test_a_list_of_rates_goes_on_and_the_rate_reported_is_the_rate_used():
    net = Line()
    rates = [0.5, 0.25, 0.125, 0.0625]
    step = step_over(net, lambda p: nn.SGD(p, rates), trainable=["a", "b"])
    reported = []
    for number in range(4):
        (mg.freeze if number == 1 else mg.unfreeze)(net, "b")
        assert ("b.weight" in step.trainable) == (number != 1)
        reported.append(float(step.optimizer.get_lr().asnumpy()))
        before = weights_of(net)[0][0]
        step(X)
        assert before - weights_of(net)[0][0] == reported[-1]
    assert reported == rates
    assert weights_of(net)[1][0] == 3 - 2 * (0.5 + 0.125 + 0.0625)


def test_rates_of_groups_stay_with_their_weights_when_a_group_before_them_vanishes():
    def grouped(parameters: list[Parameter]) -> nn.Cell:
        schedule = nn.ExponentialDecayLR(0.5, 0.5, 1)
        rates = {"a": 0.25, "b": schedule, "c": 0.125}
        return nn.SGD([{"params": [p], "lr": rates[p.name[0]]} for p in parameters], 1.0)

    net = Line()
    step = step_over(net, grouped)
    step(X)
    mg.freeze(net, "a")
    step(X)
    mg.unfreeze(net)
    step(X)
    assert weights_of(net)[0] == [1 - 2 * 0.25, 2 - 4 * 0.25]
    assert weights_of(net)[1] == [3 - 2 * (0.5 + 0.25 + 0.125), 4 - 4 * (0.5 + 0.25 + 0.125)]
    assert weights_of(net)[2] == [5 - 3 * 125, 6 - 3 * 250]


def set_rate(step: mg.TrainStep, value: float) -> None:
    ops.assign(step.optimizer.learning_rate, Tensor(value, ms.float32))


def test_a_rate_set_while_training_goes_along_there_and_back():
    net = Line()
    step = step_over(net, lambda p: nn.SGD(p, 0.5), trainable=["a", "b"])
    step(X)
    set_rate(step, 0.25)
    mg.freeze(net, "b")
    step(X)
    set_rate(step, 0.5)  # where it began
    mg.unfreeze(net)
    step(X)
    assert weights_of(net)[:2] == [[1 - 1.25, 2 - 2.5], [3 - 2.0, 4 - 4.0]]


def test_a_rate_that_nobody_set_stays_that_of_its_stage():
    net = Line()
    step = step_over(net, lambda p: nn.SGD(p, 0.5 / len(p)), trainable=["a", "b"])
    step(X)
    mg.freeze(net, "b")
    step(X)
    mg.unfreeze(net)
    step(X)
    assert weights_of(net)[0] == [1 - 0.25 - 0.5 - 0.25, 2 - 0.5 - 1.0 - 0.5]


def test_a_rate_set_before_a_group_was_frozen_is_there_when_it_is_released_into_a_new_stage():
    def grouped(parameters: list[Parameter]) -> nn.Cell:
        return optim.SGD([{"params": [p], "lr": 0.5} for p in parameters], 1.0)

    net = Line()
    mg.freeze(net, "c")
    step = step_over(net, grouped)
    step(X)
    ops.assign(step.optimizer.param_groups[1]["lr"], Tensor(0.25, ms.float32))
    mg.freeze(net, "b")
    step(X)
    mg.unfreeze(net)
    step(X)
    assert weights_of(net)[0] == [1 - 1.5, 2 - 3.0]
    assert weights_of(net)[1] == [3 - 2 * 0.5 - 2 * 0.25, 4 - 4 * 0.5 - 4 * 0.25]


def test_a_scheduler_made_for_the_first_optimizer_drives_those_of_later_stages():
    net = Line()
    mg.freeze(net, "a", "c")  # the first layer joins later, at the head of the list
    step = step_over(net, lambda p: optim.SGD(p, 0.5))
    scheduler = optim.lr_scheduler.StepLR(step.optimizer, step_size=1, gamma=0.5)
    step(X)
    scheduler.step()
    mg.unfreeze(net, "a")
    step(X)
    scheduler.step()
    step(X)
    mg.freeze(net, "a")
    scheduler.step()
    step(X)
    assert weights_of(net)[0] == [1 - 0.25 - 0.125, 2 - 0.5 - 0.25]
    assert weights_of(net)[1] == [3 - 2 * (0.5 + 0.25 + 0.125 + 0.0625), 4 - 4 * 0.9375]


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
