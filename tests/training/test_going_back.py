"""Loading into a step that has run, or into a script that holds something else than the save."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg
from tests.nets.step_nets import Line, X, step_over, weights_of

pytestmark = pytest.mark.usefixtures("mode")
Make = Callable[[list[Parameter]], nn.Cell]


def momentum(parameters: list[Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 0.25, 0.5)


def by_hand(weight: list[float], factor: float, steps: int, velocity: float = 0.0) -> list[float]:
    """Take steps of `momentum` at the gradient of a layer of `Line`, which is a constant."""
    value, moment = np.array(weight), velocity
    for _ in range(steps):
        moment = 0.5 * moment + factor
        value = value - 0.25 * moment * np.array([1.0, 2.0])
    return value.tolist()


def stages(step: mg.TrainStep) -> mg.Schedule:
    return mg.Schedule(step, [mg.Stage(train="a", epochs=2), mg.Stage(train=["a", "b"])])


def trained_to_the_border(step: mg.TrainStep, schedule: mg.Schedule) -> None:
    for epoch in range(2):
        schedule.at(epoch=epoch)
        step(X)
        step.set_epoch(epoch + 1)
    step.save("border")


@pytest.mark.parametrize("left", [False, True], ids=["in-the-later-stage", "having-left-it"])
def test_back_to_an_earlier_stage_and_on_again_is_as_if_nothing_had_been_between(left: bool):
    net = Line()
    step = step_over(net, momentum)
    schedule = stages(step)
    trained_to_the_border(step, schedule)
    schedule.at(epoch=2)
    for _ in range(3):
        step(X)
    if left:
        schedule.at(epoch=0)
        assert step.trainable == ["a.weight"]
    assert step.load("border") == (2, 2)
    assert step.trainable == ["a.weight"]
    schedule.at(epoch=2)
    assert step.trainable == ["a.weight", "b.weight"]
    step(X)
    # b begins anew: its velocity of the three steps is none of the save's
    assert weights_of(net) == [by_hand([1, 2], 1, 3), by_hand([3, 4], 2, 1), [5.0, 6.0]]


def test_back_within_the_stage_and_from_a_stage_that_froze_more():
    net = Line()
    step = step_over(net, momentum)
    schedule = mg.Schedule(step, [mg.Stage(train=["a", "b"], epochs=2), mg.Stage(freeze=["a"])])
    mg.freeze(net, "c")
    trained_to_the_border(step, schedule)
    schedule.at(epoch=2)
    step(X)
    assert weights_of(net)[0] == by_hand([1, 2], 1, 2)
    step.load("border")
    schedule.at(epoch=1)
    assert step.trainable == ["a.weight", "b.weight"]
    step(X)
    assert weights_of(net) == [by_hand([1, 2], 1, 3), by_hand([3, 4], 2, 3), [5.0, 6.0]]


def test_two_freezes_of_one_layer_are_both_undone_after_a_load():
    net = Line()
    first, second = mg.freeze(net, "a"), mg.freeze(net, "a")
    step = step_over(net, momentum)
    step(X)
    step.save("a")
    step.load("a")
    first.undo()
    assert mg.is_frozen(net, "a")
    second.undo()
    assert not mg.is_frozen(net, "a")


def lowered_in_a_stage_before() -> tuple[nn.Cell, mg.TrainStep]:
    net = Line()
    mg.freeze(net, "b", "c")
    return net, step_over(net, lambda p: nn.SGD(p, 0.5))


def test_a_rate_lowered_in_a_stage_before_is_there_after_a_resume():
    net, step = lowered_in_a_stage_before()
    step(X)
    ops.assign(step.optimizer.learning_rate, Tensor(0.25, ms.float32))
    step(X)
    mg.unfreeze(net, "b")
    mg.freeze(net, "a")
    step(X)
    step.save("b")
    net, step = lowered_in_a_stage_before()
    step.load("b")
    mg.unfreeze(net, "a")
    mg.freeze(net, "b")
    step(X)
    assert weights_of(net) == [[1 - 1.0, 2 - 2.0], [3 - 1.0, 4 - 2.0], [5.0, 6.0]]


def test_a_stage_that_asks_for_a_rate_or_momentum_of_its_own_has_it(caplog):
    def own(parameters: list[Parameter]) -> nn.Cell:
        alone = len(parameters) == 1
        return nn.Momentum(parameters, 0.5 if alone else 0.125, 0.5 if alone else 0.25)

    net = Line()
    mg.freeze(net, "b", "c")
    step = step_over(net, own)
    step(X)
    ops.assign(step.optimizer.learning_rate, Tensor(0.25, ms.float32))
    mg.unfreeze(net, "b")
    step(X)
    # velocity 1, then 0.25 + 1; that of b is 2 in its first step
    assert weights_of(net)[0] == [1 - 0.5 - 0.125 * 1.25, 2 - 1.0 - 0.125 * 2.5]
    assert weights_of(net)[1] == [3 - 0.125 * 2, 4 - 0.125 * 4]
    assert "goes on" not in caplog.text


def test_a_rate_that_goes_on_in_the_next_stage_is_told(caplog):
    net, step = lowered_in_a_stage_before()
    step(X)
    ops.assign(step.optimizer.learning_rate, Tensor(0.25, ms.float32))
    mg.unfreeze(net, "b")
    step(X)
    assert weights_of(net)[0] == [1 - 0.75, 2 - 1.5]
    told = "the rate of a.weight, b.weight goes on at 0.25, as it was set; the optimizer was made "
    assert told + "with 0.5" in caplog.text


def by_flag(net: nn.Cell) -> None:
    net.a.weight.requires_grad = False


HOLDS = [
    pytest.param(lambda net: mg.freeze(net, "a"), r"freeze\('a'\)", id="freeze"),
    pytest.param(by_flag, "requires_grad = False", id="flag"),
]


@pytest.mark.parametrize(("hold", "told"), HOLDS)
def test_what_the_script_holds_and_the_save_trains_is_refused(hold: Callable, told: str):
    net = Line()
    mg.freeze(net, "c")
    step = step_over(net, momentum)
    step(X)
    step.save("c")
    net = Line()
    hold(net)
    step = step_over(net, momentum)
    before = weights_of(net)
    with pytest.raises(mg.CheckpointError, match=rf"{told} holds a\.weight, which the save trains"):
        step.load("c")
    assert weights_of(net) == before
    assert step.trainable == ["b.weight", "c.weight"]
    assert step.position == (0, 0)


@pytest.mark.parametrize(("hold", "told"), HOLDS)
def test_what_the_run_held_once_and_let_go_may_be_held_when_it_is_loaded(hold: Callable, told: str):
    def held_once() -> tuple[nn.Cell, mg.TrainStep]:
        net = Line()
        hold(net)
        return net, step_over(net, momentum, trainable=["a", "b"])

    net, step = held_once()
    step(X)
    if told == "requires_grad = False":
        net.a.weight.requires_grad = True
    else:
        mg.unfreeze(net, "a")
    step(X)
    step.save("d")
    net, step = held_once()
    step.load("d")
    step(X)
    assert weights_of(net)[:2] == [by_hand([1, 2], 1, 2), by_hand([3, 4], 2, 3)]


@pytest.mark.parametrize("counters", [False, True], ids=["state", "state-and-counters"])
def test_what_is_restarted_at_a_change_is_so_right_after_a_load(counters: bool):
    def make() -> tuple[nn.Cell, mg.TrainStep]:
        net = Line()
        options = {"restart_state": True, "restart_counters": counters}
        step = step_over(net, lambda p: nn.Adam(p, 0.5), trainable=["a", "b"], **options)
        return net, step

    net, step = make()
    for _ in range(3):
        step(X)
    mg.freeze(net, "a")
    step(X)
    step.save("e")
    mg.unfreeze(net, "a")
    step(X)
    again, step = make()
    step.load("e")
    mg.unfreeze(again, "a")
    step(X)
    np.testing.assert_allclose(weights_of(again), weights_of(net), rtol=1e-6)
    kept = ms.ops.abs(net.a.weight - Line().a.weight).asnumpy()
    # three steps of the rate; the fourth of a fresh Adam is as long, with old counters shorter
    assert (abs(kept - 2.0).max() < 1e-3) == counters


def test_what_is_held_before_the_first_call_is_held_behind_a_stage_without_it():
    net = Line()
    step = step_over(net, lambda p: mg.HoldOptimizer(nn.SGD(p, 0.5)), trainable=["a", "b"])
    step.optimizer.hold("a")
    with mg.freeze(net, "a"):
        step(X)
    step(X)
    assert step.trainable == ["a.weight", "b.weight"]
    assert weights_of(net)[:2] == [[1.0, 2.0], [3 - 2.0, 4 - 4.0]]


def test_a_checkpoint_loaded_before_the_first_call_is_there_for_what_is_frozen_until_then():
    net = Line()
    step = step_over(net, momentum, trainable=["a", "b"])
    # all of it: MindSpore takes a lone state for the weight that its name ends with
    values = {p.name: Parameter(p.asnumpy()) for p in step.get_parameters()}
    values |= {f"moments.{n}.weight": Parameter(Tensor([4.0, 8.0], ms.float32)) for n in "ab"}
    ms.load_param_into_net(step, values)
    frozen = mg.freeze(net, "a")
    step(X)
    frozen.undo()
    step(X)
    assert weights_of(net)[0] == by_hand([1, 2], 1, 1, velocity=4.0)
    assert weights_of(net)[1] == by_hand([3, 4], 2, 2, velocity=4.0)


def test_a_save_with_everything_frozen_is_loaded():
    net = Line()
    step = step_over(net, momentum, trainable=["a", "b"])
    step(X)
    mg.freeze(net, "*")
    step.save("frozen")
    saved = weights_of(net)
    mg.unfreeze(net)
    step(X)
    mg.freeze(net, "*")
    assert step.load("frozen") == (1, 0)
    assert weights_of(net) == saved
    mg.unfreeze(net)
    step(X)
    assert weights_of(net)[:2] == [by_hand([1, 2], 1, 2), by_hand([3, 4], 2, 2)]


def test_state_that_a_save_lacks_begins_anew_in_the_stage_that_runs_on():
    net = Line()
    step = step_over(net, momentum, trainable=["a", "b"])
    with mg.freeze(net, "b"):
        step(X)
    step.save("without")
    for _ in range(2):
        step(X)
    step.load("without")
    step(X)
    assert weights_of(net)[:2] == [by_hand([1, 2], 1, 2), by_hand([3, 4], 2, 1)]
