"""Every optimizer in groups, with a schedule or a scheduler of its rate, over two stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.experimental import optim

import msgrad as mg
from tests.nets.step_nets import Line, Trap, X, batches, step_over, weights_of
from tests.training.contract import (
    ALL,
    FIXED,
    MIXED,
    PART,
    ROWS,
    Row,
    Values,
    Weights,
    state_of,
    values_of,
)

GROUPED = [name for name in ROWS if "grouped" not in name and "rate" not in name]
# MindSpore refuses groups with rates of their own in these
NO_GROUPS = ("adafactor", "ftrl")
NEW = [name for name in GROUPED if name.startswith(("exp-", "mint-"))]


def by_hand(make: Callable[[Weights], nn.Cell], *, scheduled: bool) -> Values:
    """Do both stages with plain MindSpore, its state carried and its rates halved by hand."""
    net, kept, done = Trap(), {}, 0
    for trains in (PART, ALL):
        optimizer = make([p for p in net.get_parameters() if p.name in trains])
        cell = nn.TrainOneStepCell(net, optimizer).set_train()
        for parameter in state_of(optimizer):
            if parameter.name in kept:
                ops.assign(parameter, Tensor(kept[parameter.name]))
        firsts = [rate.asnumpy().copy() for rate in optimizer.lrs] if scheduled else []
        for batch in batches():
            for rate, first in zip(optimizer.lrs if scheduled else (), firsts, strict=True):
                ops.assign(rate, Tensor(first * np.float32(0.5**done)))
            cell(*batch)
            done += 1
        kept = values_of(state_of(optimizer))
    return values_of(net.get_parameters())


def by_step(make: Callable[[Weights], nn.Cell], *, scheduled: bool) -> Values:
    net = Trap()
    frozen = mg.freeze(net, "*", *(f"!{name}" for name in PART))
    step = mg.TrainStep(net, make).set_train()
    scheduler = optim.lr_scheduler.ExponentialLR(step.optimizer, 0.5) if scheduled else None
    for _ in (PART, ALL):
        for batch in batches():
            step(*batch)
            if scheduler is not None:
                scheduler.step()
        frozen.undo()
    return values_of(net.get_parameters())


def skip_what_stands_still(row: Row) -> None:
    if row.graph_only and ms.get_context("mode") == ms.PYNATIVE_MODE:
        pytest.skip("this optimizer moves nothing on a CPU in PYNATIVE_MODE")
    if row.since_2_10 and tuple(map(int, ms.__version__.split(".")[:2])) < (2, 10):
        pytest.skip("this optimizer moves nothing on a CPU before MindSpore 2.10")


def assert_same_run(make: Callable[[Weights], nn.Cell], *, scheduled: bool) -> None:
    right, found = by_hand(make, scheduled=scheduled), by_step(make, scheduled=scheduled)
    first = values_of(Trap().get_parameters())
    assert {n for n in ALL if not np.array_equal(found[n], first[n])} == set(ALL)
    for name in ALL:
        # the last bits of the first launches of a graph differ from run to run
        np.testing.assert_allclose(found[name], right[name], rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", NEW)
def test_a_scheduler_reaches_the_groups_of_both_stages(name: str):
    row = ROWS[name]
    skip_what_stands_still(row)
    assert_same_run(lambda p: row.make(FIXED(p)), scheduled=True)


@pytest.mark.parametrize("name", [name for name in GROUPED if name not in (*NEW, *NO_GROUPS)])
def test_schedules_and_lists_of_rates_go_on_in_the_groups_of_both_stages(name: str):
    row = ROWS[name]
    assert_same_run(lambda p: row.make(MIXED(p)), scheduled=False)


def by_layer(parameters: list[Parameter]) -> nn.Cell:
    rates = {"a": 0.5, "b": 0.25, "c": 2.0**-10}
    return optim.SGD([{"params": [p], "lr": rates[p.name[0]]} for p in parameters], 1.0)


@pytest.mark.usefixtures("mode")
def test_a_group_that_joins_goes_with_the_scheduler_there_and_back():
    net = Line()
    mg.freeze(net, "a", "c")
    step = step_over(net, by_layer)
    scheduler = optim.lr_scheduler.StepLR(step.optimizer, step_size=1, gamma=0.5)
    for frozen in (["a", "c"], ["c"], ["a"], []):  # a joins, leaves and comes again
        mg.unfreeze(net)
        for name in frozen:
            mg.freeze(net, name)
        step(X)
        scheduler.step()
    # the rates of the four steps are the first ones times 1, 1/2, 1/4, 1/8
    a, b, c = 0.5 * (1 / 2 + 1 / 8), 0.25 * (1 + 1 / 2 + 1 / 4 + 1 / 8), 2.0**-10 * (1 / 4 + 1 / 8)
    assert weights_of(net) == [
        [1 - a, 2 - 2 * a],
        [3 - 2 * b, 4 - 4 * b],
        [5 - 1000 * c, 6 - 2000 * c],
    ]
    assert [float(rate.asnumpy()) for rate in step.optimizer.lrs] == [
        0.5 / 16,
        0.25 / 16,
        2.0**-14,
    ]


@pytest.mark.usefixtures("mode")
def test_a_plateau_lowers_the_groups_that_joined_too():
    net = Line()
    mg.freeze(net, "a", "c")
    step = step_over(net, by_layer)
    plateau = optim.lr_scheduler.ReduceLROnPlateau(step.optimizer, factor=0.5, patience=0)
    for number in range(3):
        if number == 1:
            mg.unfreeze(net, "a")
        step(X)
        plateau.step(1.0)  # lowers at the second, which is no better than the first
    a, b = 0.5 * (1 + 1 / 2), 0.25 * (1 + 1 + 1 / 2)
    assert weights_of(net)[:2] == [[1 - a, 2 - 2 * a], [3 - 2 * b, 4 - 4 * b]]


def test_a_rate_set_by_hand_without_a_scheduler_moves_no_group_that_joins():
    net = Line()
    mg.freeze(net, "a", "c")
    step = step_over(net, by_layer)
    step(X)
    ops.assign(step.optimizer.lrs[0], Tensor(0.125, ms.float32))
    mg.unfreeze(net, "a")
    step(X)
    assert weights_of(net)[:2] == [[1 - 0.5, 2 - 1.0], [3 - 0.75, 4 - 1.5]]


def test_the_rates_of_groups_that_joined_are_those_of_the_save(tmp_path: Path):
    def begin() -> tuple[nn.Cell, mg.TrainStep, mg.Schedule, optim.lr_scheduler.StepLR]:
        net = Line()
        step = step_over(net, by_layer)
        stages = [mg.Stage(train=name, steps=1) for name in ("b", ["a", "b"], "b", ["a", "b"])]
        schedule = mg.Schedule(step, stages)
        schedule.at(step=0)
        assert step.trainable == ["b.weight"]
        scheduler = optim.lr_scheduler.StepLR(step.optimizer, step_size=1, gamma=0.5)
        return net, step, schedule, scheduler

    def run(cut: bool) -> list[list[float]]:
        net, step, schedule, scheduler = begin()
        for number in range(4):
            schedule.at(step=number)
            if number == 2 and cut:
                step.save(tmp_path / "run")
                net, step, schedule, scheduler = begin()
                step.load(tmp_path / "run")
                schedule.at(step=number)
            step(X)
            scheduler.step()
        return weights_of(net)

    a, b = 0.5 * (1 / 2 + 1 / 8), 0.25 * (1 + 1 / 2 + 1 / 4 + 1 / 8)
    right = [[1 - a, 2 - 2 * a], [3 - 2 * b, 4 - 4 * b], [5, 6]]
    assert run(cut=False) == right
    assert run(cut=True) == right
