"""Applying a plan: nothing half-done, nothing twice, and undone without a trace."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import msgrad as mg
from msgrad import _plan_apply
from tests.plan_nets import Small, Staged

RULES = [
    {"freeze": ["fc1", "norm"]},
    {"unfreeze": "fc1.bias"},
    {"stop": "norm", "at": "input"},
    {"scale": "norm", "by": 0.5, "at": "output"},
    {"reverse": ["fc2", "head"]},
]


def cells_below(net: nn.Cell) -> list[nn.Cell]:
    return [net] + [c for child in net._cells.values() if child for c in cells_below(child)]


def state_of(net: nn.Cell) -> dict:
    """Note every object, flag and bit that a plan may touch."""
    cells = cells_below(net)
    return {
        "cells": [id(cell) for cell in cells],
        "places": [(id(cell), key, id(c)) for cell in cells for key, c in cell._cells.items()],
        "training": [(cell.training, "add_flags" in vars(cell)) for cell in cells],
        "flags": [(id(p), p.name, p.requires_grad) for p in net.get_parameters()],
        "bits": [p.asnumpy().tobytes() for p in net.get_parameters()],
        "paths": [name for name, _ in net.parameters_and_names()],
    }


@pytest.fixture
def plan() -> mg.Plan:
    return mg.Plan.from_dict({"plan": RULES})


def a_net() -> Staged:
    """Return a network in training, with one weight frozen and one flag off by hand."""
    net = Staged()
    net.set_train()
    mg.freeze(net, "fc3.bias")
    net.fc2.bias.requires_grad = False
    return net


def test_undo_gives_the_same_objects_flags_and_bits_back(plan):
    net = a_net()
    before = state_of(net)
    applied = plan.apply(net)
    assert applied.frozen == ["fc1.weight", "norm.gamma", "norm.beta"]
    assert applied.wrapped == ["norm", "fc2", "head"]
    kinds = [(path, type(wrapper).__name__) for path, wrapper in mg.wrapped(net)]
    assert kinds == [
        ("norm", "ScaleGradient"),
        ("norm", "StopGradient"),
        ("fc2", "ReverseGradient"),
        ("head", "ReverseGradient"),
    ]
    assert net.norm.training is False
    assert repr(applied) == "Applied(3 frozen, 3 wrapped)"
    applied.undo()
    assert state_of(net) == before
    applied.undo()
    assert state_of(net) == before
    assert repr(applied) == "Applied(3 frozen, 3 wrapped, undone)"


def fail_under(plan: mg.Plan, net: nn.Cell, before: dict) -> None:
    with plan.apply(net):
        assert state_of(net) != before
        raise RuntimeError("stop here")


def test_a_context_ends_an_application_by_an_exception_too(plan):
    net = a_net()
    before = state_of(net)
    with pytest.raises(RuntimeError, match="stop here"):
        fail_under(plan, net, before)
    assert state_of(net) == before


def test_applying_twice_changes_nothing_and_its_undo_takes_nothing_back(plan):
    net = a_net()
    before = state_of(net)
    first = plan.apply(net)
    once = state_of(net)
    # an equal plan that was read again is the same plan
    second = mg.Plan.from_dict(plan.to_dict()).apply(net)
    assert state_of(net) == once
    assert (second.frozen, second.wrapped) == ([], [])
    second.undo()
    assert state_of(net) == once
    first.undo()
    assert state_of(net) == before


def test_what_was_taken_away_by_hand_is_put_back_by_applying_again(plan):
    net = a_net()
    plan.apply(net)
    mg.unwrap(net, "fc2")
    mg.unfreeze(net, "norm")
    again = plan.apply(net)
    assert again.frozen == ["norm.gamma", "norm.beta"]
    assert again.wrapped == ["fc2"]


def test_two_plans_are_undone_in_any_order():
    net = Staged()
    before = state_of(net)
    one = mg.Plan.from_dict({"plan": [{"freeze": "fc1"}, {"stop": "fc2"}]}).apply(net)
    two = mg.Plan.from_dict({"plan": [{"freeze": ["fc1", "head"]}, {"stop": "fc2"}]}).apply(net)
    assert len(mg.wrapped(net)) == 2
    one.undo()
    assert [mg.is_frozen(net, name) for name in ("fc1", "head", "fc3")] == [True, True, False]
    assert [path for path, _ in mg.wrapped(net)] == ["fc2"]
    two.undo()
    assert state_of(net) == before


@pytest.mark.parametrize("failing", ["make_claims", "_wrapper"])
def test_nothing_is_half_done_after_an_exception_half_way(plan, failing, monkeypatch):
    net = a_net()
    before = state_of(net)
    real, calls = getattr(_plan_apply, failing), []

    def fail(*arguments):
        calls.append(arguments)
        if failing == "make_claims" or len(calls) == 3:
            raise RuntimeError("broken half way")
        return real(*arguments)

    monkeypatch.setattr(_plan_apply, failing, fail)
    with pytest.raises(RuntimeError, match="broken half way"):
        plan.apply(net)
    assert calls
    assert state_of(net) == before


class Dropping(nn.Cell):
    """A layer that drops whatever the mode is, which a freeze warns of."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 4)

    def construct(self, x: Tensor) -> Tensor:
        return ops.dropout(self.fc(x), 0.5)


def test_nothing_is_half_done_where_a_warning_is_an_error():
    net = nn.SequentialCell(Dropping(), nn.Dense(4, 2))
    before = state_of(net)
    plan = mg.Plan.from_dict({"plan": [{"stop": "0.fc"}, {"freeze": "0"}]})
    with pytest.raises(UserWarning, match=r"calls dropout without training=self\.training"):
        plan.apply(net)
    assert state_of(net) == before


def test_a_step_applies_the_plan_and_the_plan_applied_before_can_be_undone(plan):
    net = Staged()
    before = state_of(net)
    applied = plan.apply(net)
    step = plan.train_step(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss(), unreached="allow")
    assert "fc1.weight" not in step.trainable
    assert "fc1.bias" in step.trainable
    applied.undo()
    assert state_of(net) == before
    plan.train_step(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss())
    assert mg.is_frozen(net, "norm")


def test_a_function_and_a_cell_around_the_network_are_trained_by_the_same_plan():
    net = Staged()
    plan = mg.Plan.from_dict({"plan": [{"freeze": ["fc1", "norm"]}]})
    around = nn.WithLossCell(net, nn.MSELoss())

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return around(x, y)

    steps = [
        plan.train_step(net, lambda p: nn.SGD(p, 0.1), network=network, unreached="allow")
        for network in (around, loss)
    ]
    assert [step.trainable for step in steps] == [
        [f"{layer}.{kind}" for layer in ("fc2", "fc3", "head") for kind in ("weight", "bias")]
    ] * 2


def test_groups_need_a_rate():
    plan = mg.Plan.from_dict({"plan": [{"group": "*.bias", "lr_scale": 2.0}]})
    with pytest.raises(mg.ArgumentError, match=r"lr None cannot be scaled .*; give train_step\(…"):
        plan.train_step(Staged(), lambda p: nn.SGD(p, 0.1))


def test_without_groups_the_optimizer_gets_parameters():
    given = []

    def optimizer(parameters):
        given.append(parameters)
        return nn.SGD(parameters, 0.1)

    net = Staged()
    mg.Plan.from_dict({}).train_step(net, optimizer, lr=0.1, unreached="allow")
    assert [p.name for p in given[0]] == [p.name for p in net.trainable_params()]


def test_a_step_that_trains_a_part_is_given_the_rules_for_that_part_alone():
    net = Staged()
    plan = mg.Plan.from_dict(
        {
            "plan": [{"hold": ["fc2.bias", "head.bias"]}],
            "updates": {"fc2.weight": "non_negative", "head.weight": "unit_norm"},
        }
    )
    step = plan.train_step(
        net, lambda p: nn.SGD(p, 0.1), nn.MSELoss(), trainable="head", unreached="allow"
    )
    assert step.optimizer.held == ["head.bias"]
    assert [update.names for update in step.updates] == [["head.weight"]]


def test_a_plan_without_stages_has_no_schedule():
    plan = mg.Plan.from_dict({})
    step = plan.train_step(Staged(), lambda p: nn.SGD(p, 0.1), unreached="allow")
    assert plan.schedule(step) is None


def test_a_frozen_norm_goes_on_adapting_through_stages_where_its_rule_says_so():
    net = Staged()
    plan = mg.Plan.from_dict(
        {
            "plan": [{"freeze": ["fc1", "norm"], "statistics": False}],
            "stages": [{"train": "head", "epochs": 1}, {"train": "the rest"}],
        }
    )
    step = plan.train_step(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss(), unreached="allow")
    step.set_train()
    schedule = plan.schedule(step)
    assert schedule is not None
    schedule.at(epoch=0)
    before = mg.Snapshot(net)
    x = Tensor(np.linspace(-1, 1, 15).reshape(5, 3), ms.float32)
    step(x, Tensor(np.ones((5, 2)), ms.float32))
    assert before.moved() == [
        "norm.moving_mean",
        "norm.moving_variance",
        "head.weight",
        "head.bias",
    ]


def test_a_run_that_is_resumed_is_under_its_plan_once(tmp_path):
    plan = mg.Plan.from_dict(
        {
            "plan": [{"freeze": ["fc1", "norm"]}],
            "stages": [{"train": "head", "epochs": 1}, {"train": "the rest"}],
        }
    )

    def run() -> tuple[Staged, mg.TrainStep, mg.Schedule]:
        net = Staged()
        step = plan.train_step(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss(), unreached="allow")
        schedule = plan.schedule(step)
        assert schedule is not None
        return net, step, schedule

    _, step, schedule = run()
    schedule.at(epoch=1)
    step.save(tmp_path / "run.ckpt")
    net, again, schedule = run()
    again.load(tmp_path / "run.ckpt")
    schedule.at(epoch=1)
    assert again.trainable == step.trainable
    assert plan.apply(net).frozen == []
    texts = [r.text for r in mg.explain(net, "fc1.bias").reasons if r.kind == "freeze"]
    assert texts == [
        "rule 1 of the plan keeps it, over the model",
        "stage 2 of the schedule keeps it as well",
    ]


def test_a_network_that_is_no_cell_is_refused():
    with pytest.raises(mg.ArgumentTypeError, match="net 'fc1' is no Cell"):
        mg.Plan.from_dict({}).apply("fc1")  # pyright: ignore[reportArgumentType]


def test_names_and_order_are_the_same_under_a_plan():
    net, other = Small(), Small()
    mg.Plan.from_dict({"plan": [{"stop": ["conv1", "blocks.1"]}]}).apply(net)
    assert [n for n, _ in net.parameters_and_names()] == [
        n for n, _ in other.parameters_and_names()
    ]
