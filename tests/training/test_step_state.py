"""What goes along when a TrainStep changes its stage: optimizer state, counters, rates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

import msgrad as mg
from tests.nets.step_nets import (
    AccumulatingStep,
    Line,
    Trap,
    X,
    batches,
    decaying,
    momentum,
    step_over,
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


def test_a_weight_held_at_run_time_is_still_held_when_its_state_begins_anew():
    net = Line()
    step = step_over(
        net, lambda p: mg.HoldOptimizer(momentum(p)), trainable=["a", "b"], restart_state=True
    )
    step.optimizer.hold("b")
    step(X)
    with mg.freeze(net, "b"):
        step(X)
    step(X)
    assert step.trainable == ["a.weight", "b.weight"]
    assert weights_of(net)[1] == [3.0, 4.0]
    assert weights_of(net)[0] == [1 - 0.25 - 0.375 - 0.4375, 2 - 0.5 - 0.75 - 0.875]


def test_a_state_that_train_cell_and_optimizer_both_name_is_refused():
    def adagrad(parameters: list[Parameter]) -> nn.Cell:
        return nn.Adagrad(parameters, learning_rate=0.1)

    def clashing(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        cell = AccumulatingStep(network, optimizer)
        for total, weight in zip(cell.sums, optimizer.parameters, strict=True):
            total.name = f"accum.{weight.name}"
        return cell

    with pytest.raises(ValueError, match=r"each have a state named 'accum\.a\.weight'.*give clone"):
        step_over(Line(), adagrad, train_cell=clashing)


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
    mg.freeze(net, "c")
    step = mg.TrainStep(net, momentum).set_train()
    step(X)
    with mg.freeze(net, "a"):
        step(X)
    mg.unfreeze(net, "c")
    mg.stop_gradient(net, "b")
    # a stage of all three is looked at while the reach is unknown, and never run
    assert step.trainable == ["a.weight", "b.weight", "c.weight"]
    step(X)
    assert step.trainable == ["a.weight", "c.weight"]
    mg.unwrap(net)
    step(X)
    # b: velocities 2, 3, and 2 + 0.5 * 3; a: 1, 1.5, 1.75
    assert weights_of(net)[1] == [3 - 0.5 - 0.75 - 0.875, 4 - 1.0 - 1.5 - 1.75]
    assert weights_of(net)[0] == [1 - 0.25 - 0.375 - 0.4375, 2 - 0.5 - 0.75 - 0.875]


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
    step = step_over(net, lambda p: nn.SGD(p, rates), trainable=["a", "b"], restart_counters=True)
    step(X)
    with mg.freeze(net, "b"):
        step(X)
    step(X)
    assert step.stages == [["a.weight", "b.weight"], ["a.weight"]]
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


class Plain(nn.Cell):
    """A momentum of 0.5 whose slots stand where MindSpore's own walk does not look."""

    def __init__(self, parameters: list[Parameter], kind: str) -> None:
        super().__init__(auto_prefix=False)
        self.parameters = ParameterTuple(parameters)
        slots = tuple(
            Parameter(ops.zeros_like(p), name=f"v.{p.name}", requires_grad=False)
            for p in parameters
        )
        self.slots = {"tuple": (slots, ()), "dict": {"v": slots}}[kind]
        self.key = {"tuple": 0, "dict": "v"}[kind]

    def construct(self, grads: tuple[Tensor, ...]) -> bool:
        slots = self.slots[self.key]
        for number in range(len(grads)):
            ops.assign(slots[number], slots[number] * 0.5 + grads[number])
            ops.assign(self.parameters[number], self.parameters[number] - slots[number])
        return True


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_slots_in_plain_tuples_and_dicts_go_along_and_are_saved(kind: str, tmp_path: Path):
    net = Line()
    frozen = mg.freeze(net, "b")
    step = step_over(net, lambda p: Plain(p, kind), trainable=["a", "b"])
    step(X)
    frozen.undo()
    step(X)
    step.save(tmp_path / "run")
    net = Line()
    step = step_over(net, lambda p: Plain(p, kind), trainable=["a", "b"])
    step.load(tmp_path / "run")
    step(X)
    # velocities 1, 1.5, 1.75 and 1, 1.5, times the gradient
    assert weights_of(net)[:2] == [[1 - 4.25, 2 - 8.5], [3 - 5.0, 4 - 10.0]]
