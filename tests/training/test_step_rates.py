"""Learning rates of a TrainStep: those that a list, a schedule, a callback or a user gives."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.experimental import optim

import msgrad as mg
from tests.nets.step_nets import Line, X, step_over, weights_of

pytestmark = pytest.mark.usefixtures("mode")


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


STAGES = [
    mg.Stage(train="a", steps=2, lr=0.5),
    mg.Stage(train=["a", "b"], steps=1, lr=0.25),
    mg.Stage(train=["a", "b"]),
]
# What the optimizer can be made of: a rate that it takes, and one that is written.
MAKERS = [
    pytest.param(lambda p, lr=1.0: nn.SGD(p, lr), id="takes"),
    pytest.param(lambda p: nn.SGD(p, 1.0), id="written"),
    pytest.param(lambda p: optim.SGD(p, 1.0), id="experimental"),
]


def lower(step: mg.TrainStep, rate: float) -> None:
    experimental = isinstance(step.optimizer, optim.Optimizer)
    own = step.optimizer.lrs[0] if experimental else step.optimizer.learning_rate
    ops.assign(own, Tensor(rate, ms.float32))


@pytest.mark.parametrize("make", MAKERS)
def test_each_stage_trains_at_its_own_rate_whatever_the_one_before_came_to(make):
    net = Line()
    step = step_over(net, make)
    schedule = mg.Schedule(step, STAGES)
    for number in range(4):
        schedule.at(step=number)
        if number == 1:
            assert step.trainable == ["a.weight"]
            lower(step, 0.125)
        step(X)
    a, b = 0.5 + 0.125 + 0.25 + 1.0, 0.25 + 1.0
    assert weights_of(net) == [[1 - a, 2 - 2 * a], [3 - 2 * b, 4 - 4 * b], [5, 6]]


def test_a_stage_that_goes_on_from_a_save_has_the_rate_that_it_came_to(tmp_path: Path):
    def begin() -> tuple[nn.Cell, mg.TrainStep, mg.Schedule]:
        net = Line()
        step = step_over(net, lambda p: nn.SGD(p, 1.0))
        schedule = mg.Schedule(step, STAGES)
        schedule.at(step=0)
        return net, step, schedule

    net, step, schedule = begin()
    step(X)
    lower(step, 0.125)
    step.save(tmp_path / "run")
    net, step, schedule = begin()
    step.load(tmp_path / "run")
    for number in (1, 2):
        schedule.at(step=number)
        step(X)
    a, b = 0.5 + 0.125 + 0.25, 0.25
    assert weights_of(net)[:2] == [[1 - a, 2 - 2 * a], [3 - 2 * b, 4 - 4 * b]]


def test_a_later_stage_has_another_momentum_and_the_velocity_goes_on():
    net = Line()
    step = step_over(net, lambda p, momentum=0.5: nn.Momentum(p, 1.0, momentum))
    later = mg.Stage(train="a", optimizer={"momentum": 0.25})
    schedule = mg.Schedule(step, [mg.Stage(train="a", steps=2), later])
    for number in range(3):
        schedule.at(step=number)
        step(X)
    # velocities 1, 1.5 and 0.25 · 1.5 + 1, times the gradient
    assert weights_of(net)[0] == [1 - (1 + 1.5 + 1.375), 2 - 2 * (1 + 1.5 + 1.375)]


def test_the_rate_of_a_stage_in_a_plan_scales_its_groups():
    plan = {
        "plan": [{"group": "b", "lr_scale": 0.5}, {"freeze": "c"}],
        "stages": [
            {"train": ["a", "b"], "steps": 1, "lr": 0.5},
            {"train": ["a", "b"], "lr": 0.25, "optimizer": {"momentum": 0.0}},
        ],
    }
    net, plan = Line(), mg.Plan.from_dict(plan)
    assert plan.to_dict()["stages"][1]["optimizer"] == {"momentum": 0.0}
    step = plan.train_step(net, lambda g, momentum=0.9: nn.SGD(g, 1.0, momentum), lr=1.0)
    schedule = plan.schedule(step.set_train())
    assert schedule is not None
    for number in range(2):
        schedule.at(step=number)
        step(X)
    assert weights_of(net) == [[1 - 0.75, 2 - 1.5], [3 - 0.75, 4 - 1.5], [5, 6]]


def grouped(parameters: list[Parameter]) -> nn.Cell:
    return nn.SGD([{"params": [p], "lr": 1.0 / n} for n, p in enumerate(parameters, 1)], 1.0)


def test_a_rate_for_weights_of_several_rates_is_refused_before_a_step():
    net = Line()
    step = step_over(net, grouped)
    schedule = mg.Schedule(step, [mg.Stage(train=["a", "b"], lr=0.5)])
    schedule.at(epoch=0)
    before = mg.Snapshot(net)
    with pytest.raises(mg.errors.ArgumentError, match=r"lr=0\.5, and its weights have no single"):
        step(X)
    assert before.moved() == []


@pytest.mark.parametrize(
    ("own", "error", "message"),
    [
        ({"lr": -1.0}, ValueError, r"lr=-1\.0; give 0 or more"),
        ({"lr": nn.CosineDecayLR(0.0, 1.0, 9)}, TypeError, "give a number, and a schedule where"),
        ({"optimizer": {"lr": 0.1}}, ValueError, "a rate among the keywords"),
        ({"optimizer": "Adam"}, TypeError, "give a dict of keywords"),
        ({"optimizer": {"x": Line}}, TypeError, "give a number, text"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_the_stage(own, error, message: str):
    with pytest.raises(error, match=message):
        mg.Stage(train="a", **own)


def test_a_keyword_that_the_optimizer_does_not_take_is_refused_by_the_schedule():
    step = step_over(Line(), lambda p: nn.SGD(p, 1.0))
    with pytest.raises(mg.errors.ArgumentError, match=r"gives its optimizer momentum, which"):
        mg.Schedule(step, [mg.Stage(train="a", optimizer={"momentum": 0.5})])
