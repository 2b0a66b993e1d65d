"""A plan: what its rules and stages say, written and read back, and explained."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from mindspore import nn

import msgrad as mg
from tests.nets.plan_nets import Small, Staged

WHOLE = """\
plan:
- freeze: [conv1, norm]
  statistics: false
- unfreeze: norm.beta
- stop: conv2
  at: input
- scale: blocks.0
  by: 1e-1
- reverse: head
- group: '*.bias'
  weight_decay: 0
- group: blocks.*
  lr_scale: 0.5
- update: head
  fn: clip
  args: [-1e-2, 0.5]
  when: before_forward
  force: true
- hold: blocks.1
  rows: [0, -1]
updates:
  norm.beta: {fn: non_negative, force: yes}
stages:
- {train: head, epochs: 2, dropout: no}
- {train: blocks.1, epochs: 1, cumulative: true}
- {freeze: head, epochs: 0}
- train: the rest
  cumulative: true
audit: {steps: 2, on_problem: warn}
"""
PLAIN = [
    pytest.param({}, id="nothing"),
    pytest.param({"plan": [{"freeze": "conv1"}]}, id="one rule"),
    pytest.param({"updates": [{"update": "head", "fn": "unit_norm"}]}, id="updates as a list"),
    pytest.param({"updates": {"rules": {"head": "unit_norm"}, "when": "after_step"}}, id="when"),
    pytest.param({"stages": [{"train": ["head", "!*.bias"]}]}, id="an exception"),
    pytest.param({"audit": {}}, id="an audit"),
    pytest.param(yaml.safe_load(WHOLE), id="everything"),
]


def sequence(count: int):
    return nn.SequentialCell(*[nn.Dense(1, 1) for _ in range(count)])


def from_text(text: str) -> mg.Plan:
    Path("plan.yaml").write_text(text, encoding="utf-8")
    return mg.Plan.from_file("plan.yaml")


@pytest.mark.parametrize("values", PLAIN)
def test_a_plan_written_as_a_dict_and_read_again_is_equal(values):
    plan = mg.Plan.from_dict(values)
    again = yaml.safe_load(yaml.safe_dump(plan.to_dict()))
    assert mg.Plan.from_dict(plan.to_dict()) == plan
    assert mg.Plan.from_dict(again) == plan
    assert from_text(yaml.safe_dump(plan.to_dict())) == plan


def test_plans_that_say_different_things_differ():
    plans = [mg.Plan.from_dict(yaml.safe_load(WHOLE))]
    plans += [mg.Plan.from_dict({"plan": [{kind: "head"}]}) for kind in ("freeze", "stop")]
    plans += [mg.Plan.from_dict({"plan": [{"stop": "head", "at": "input"}]})]
    assert [sum(plan == other for other in plans) for plan in plans] == [1, 1, 1, 1]


def test_a_whole_plan_fits_the_network_it_was_written_for():
    plan = from_text(WHOLE)
    net = Small()
    plan.check(net)
    assert mg.frozen_state(net) == "trainable"
    assert plan.audit.steps == 2
    assert (plan.audit.when, mg.Plan.from_dict({}).audit.when) == ("before", "never")


def test_the_keys_of_a_run_beside_a_plan_are_passed_over():
    plan = from_text("seed: 1\noptimizer: {name: SGD}\nsteps: {one: {}}\nplan:\n- freeze: conv1\n")
    assert plan == mg.Plan.from_dict({"plan": [{"freeze": "conv1"}]})


@pytest.mark.parametrize("written", [10, "10", [10]], ids=["number", "text", "list"])
def test_d9_a_number_is_the_name_of_a_layer_and_not_its_digits(written):
    net = sequence(11)
    assert mg.Plan.from_dict({"plan": [{"freeze": written}]}).apply(net).frozen == [
        "10.weight",
        "10.bias",
    ]


def test_a_number_with_a_leading_zero_is_a_name_too():
    with pytest.raises(mg.PlanError, match=r"^plan\.yaml:2: rule 1: pattern '010' matched none"):
        from_text("plan:\n- freeze: 010").check(sequence(11))


def test_a_class_and_a_callable_choose_as_everywhere():
    net = Staged()
    plan = mg.Plan.from_dict(
        {"plan": [{"freeze": nn.BatchNorm1d}, {"freeze": lambda name, _: name.endswith("bias")}]}
    )
    assert plan.apply(net).frozen == [
        "fc1.bias",
        "norm.gamma",
        "norm.beta",
        "fc2.bias",
        "fc3.bias",
        "head.bias",
    ]


def test_the_last_freeze_or_unfreeze_decides_and_the_claims_name_rule_and_line():
    net = Staged()
    plan = from_text("plan:\n- freeze: [fc1, fc2]\n- unfreeze: '*.bias'\n- freeze: fc2.bias\n")
    assert plan.apply(net).frozen == ["fc1.weight", "fc2.weight", "fc2.bias"]
    reasons = {
        name: [r.text for r in mg.explain(net, name).reasons if r.kind == "freeze"]
        for name in ("fc1.weight", "fc1.bias", "fc2.bias")
    }
    assert reasons == {
        "fc1.weight": ["rule 1 (plan.yaml:2) keeps it, over the model"],
        "fc1.bias": [],
        "fc2.bias": ["rule 3 (plan.yaml:4) keeps it, over the model"],
    }


def test_statistics_and_dropout_of_a_freeze_are_fields_that_compose():
    net = Staged()
    plan = mg.Plan.from_dict(
        {"plan": [{"freeze": "*", "statistics": False}, {"freeze": "norm"}, {"unfreeze": "head"}]}
    )
    net.set_train()
    with plan.apply(net):
        # the second freeze says nothing of statistics, so that the first decides
        assert (net.norm.training, net.fc1.training) == (True, False)
    with mg.Plan.from_dict({"plan": [{"freeze": ["fc1", "norm"]}]}).apply(net):
        assert net.norm.training is False
    assert net.norm.training is True


def test_d8_a_rule_for_biases_and_a_rule_for_one_layer_compose_and_both_are_explained():
    plan = from_text(
        "plan:\n- group: '*.bias'\n  weight_decay: 0.0\n  lr_scale: 2.0\n"
        "- group: fc2\n  lr_scale: 0.1\n"
    )
    net = Staged()
    assert plan.rules_of(net, "fc2.bias") == [
        "rule 1 (plan.yaml:2) group '*.bias': weight_decay 0.0, "
        "lr_scale 2.0 (overridden by rule 2 (plan.yaml:5))",
        "rule 2 (plan.yaml:5) group 'fc2': lr_scale 0.1, over rule 1 (plan.yaml:2)",
    ]
    printed = repr(mg.explain(net, "fc2.bias", plan)).splitlines()
    assert printed[2:] == [f"  plan: {text}" for text in plan.rules_of(net, "fc2.bias")]
    assert plan.rules_of(net, "head.weight") == []


def test_d11_why_a_weight_is_frozen_rule_and_place_and_what_it_overrode():
    plan = from_text(
        "plan:\n- freeze: [fc1, norm]\n- unfreeze: '*.bias'\n- freeze: fc1\n- stop: fc1\n"
        "stages:\n- train: head\n  epochs: 1\n- train: the rest\n"
    )
    net = Staged()
    plan.apply(net)
    assert repr(mg.explain(net, "fc1.bias", plan)).splitlines() == [
        "fc1.bias (4,) stays",
        "  model: made it trainable",
        "> freeze: rule 3 (plan.yaml:4) keeps it, over the model",
        "  plan: rule 1 (plan.yaml:2) freeze 'fc1', 'norm': keeps it "
        "(overridden by rule 3 (plan.yaml:4))",
        "  plan: rule 2 (plan.yaml:3) unfreeze '*.bias': lets it move "
        "(overridden by rule 3 (plan.yaml:4))",
        "  plan: rule 3 (plan.yaml:4) freeze 'fc1': keeps it, "
        "over rule 1 (plan.yaml:2) and rule 2 (plan.yaml:3)",
        "  plan: rule 4 (plan.yaml:5) stop 'fc1': stop at output, for all in 'fc1'",
        "  plan: stage 1 (plan.yaml:7) keeps it",
        "  plan: stage 2 (plan.yaml:9) keeps it",
        "  wrapper: StopGradient(at='output') at 'fc1': acts on its gradient",
    ]


STAGES = [
    pytest.param(
        [{"train": "head"}, {"train": "fc3"}, {"train": "the rest"}],
        [["head"], ["fc3"], ["fc2"]],
        id="the rest is what no stage trained and no rule keeps",
    ),
    pytest.param(
        [{"train": "head"}, {"train": "fc3", "cumulative": True}],
        [["head"], ["fc3", "head"]],
        id="cumulative",
    ),
    pytest.param(
        [{"train": "head"}, {"train": "the rest", "cumulative": True}],
        [["head"], ["fc2", "fc3", "head"]],
        id="all that no rule keeps",
    ),
    pytest.param(
        [{"freeze": "fc2"}, {"train": "fc2"}],
        [["fc3", "head"], ["fc2"]],
        id="freezing again",
    ),
    pytest.param(
        [{"freeze": "fc2"}, {"train": "the rest"}],
        [["fc3", "head"], ["fc2"]],
        id="the rest after a freeze",
    ),
]


@pytest.mark.parametrize(("stages", "trained"), STAGES)
def test_stages_train_what_they_say(stages, trained):
    lengths = [{"epochs": 1}] * (len(stages) - 1) + [{}]
    plan = mg.Plan.from_dict(
        {
            "plan": [{"freeze": ["fc1", "norm"]}],
            "stages": [{**stage, **length} for stage, length in zip(stages, lengths, strict=True)],
        }
    )
    net = Staged()
    step = plan.train_step(net, lambda weights: nn.SGD(weights, 0.1), unreached="allow")
    schedule = plan.schedule(step)
    assert schedule is not None
    for number, layers in enumerate(trained):
        schedule.at(epoch=number)
        assert list(dict.fromkeys(name.partition(".")[0] for name in step.trainable)) == layers
        assert plan.trains(net)[number] == step.trainable


def test_a_stage_says_how_it_was_written():
    plan = mg.Plan.from_dict(
        {
            "stages": [
                {"train": ["head"], "steps": 2, "statistics": False},
                {"train": "fc3", "steps": 3, "cumulative": True},
                {"train": "the rest"},
            ]
        }
    )
    assert [repr(stage) for stage in plan.stages] == [
        "Stage(train='head', steps=2, statistics=False)",
        "Stage(train='fc3' and what trained before, steps=3)",
        "Stage(train=the rest)",
    ]
    assert mg.Plan.from_dict({}).stages == []


def test_a_copy_of_a_network_is_under_the_same_plan():
    net = Staged()
    plan = mg.Plan.from_dict({"plan": [{"freeze": "fc1"}, {"stop": "fc2"}]})
    plan.apply(net)
    twin = copy.deepcopy(net)
    again = plan.apply(twin)
    assert (again.frozen, again.wrapped) == ([], [])
    assert mg.is_frozen(twin, "fc1")
