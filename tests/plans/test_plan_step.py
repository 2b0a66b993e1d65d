"""The step and the schedule that a plan makes."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

import msgrad as mg
from tests.nets.plan_nets import Staged
from tests.plans.plan_states import RULES, a_net, state_of


@pytest.fixture
def plan() -> mg.Plan:
    return mg.Plan.from_dict({"plan": RULES})


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


def shorter(w):
    return w[:1]


def doubled(w):
    return w * 2.0


BROKEN = [
    pytest.param(shorter, "rule 'head.weight' changes shape or dtype of 'head.weight'", id="rule"),
    pytest.param(doubled, "holds other parameters than it was given", id="optimizer"),
    pytest.param(lambda w: w, "rule 6: rule 'head.weight' is a lambda that shares", id="lambda"),
]


@pytest.mark.parametrize(("update", "message"), BROKEN)
def test_a_step_that_cannot_be_made_leaves_no_plan_behind(update, message):
    net = a_net()
    before = state_of(net)
    plan = mg.Plan.from_dict({"plan": [*RULES, {"update": "head.weight", "fn": update}]})
    with pytest.raises(mg.MsgradError, match=message):
        plan.train_step(net, lambda p: nn.SGD(p[1:], 0.1), nn.MSELoss())
    assert state_of(net) == before


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


def test_no_optimizer_is_made_with_the_state_of_what_its_stage_keeps():
    given = []

    def optimizer(parameters):
        given.append([p.name for p in parameters])
        return nn.Momentum(parameters, 0.1, 0.9)

    net = Staged()
    plan = mg.Plan.from_dict(
        {"stages": [{"train": "head", "epochs": 1}, {"train": "fc3", "cumulative": True}]}
    )
    step = plan.train_step(net, optimizer, nn.MSELoss(), unreached="allow")
    assert mg.frozen_state(net) == "trainable"
    schedule = plan.schedule(step)
    assert schedule is not None
    for epoch in (0, 1, 0):
        schedule.at(epoch=epoch)
        assert step.trainable == plan.trains(net)[epoch]
    head, more = plan.trains(net)
    assert given == [head, more, head]


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
