"""What cannot be meant for a network: every message whole, with its line, all at once."""

from __future__ import annotations

import re

import pytest

import msgrad as mg
from tests.nets.plan_nets import Small
from tests.plans.plan_files import refused

NETWORK = [
    pytest.param(
        "plan:\n- freeze: [conv1,\n   con2]",
        "plan.yaml:3: rule 1: pattern 'con2' matched none of 12 parameters; did you mean 'conv2'?",
        id="a misspelt weight, at its line",
    ),
    pytest.param(
        "plan:\n- stop: conv1.weight",
        "plan.yaml:2: rule 1: pattern 'conv1.weight' matched none of 8 cells; "
        "it names a parameter; give its cell 'conv1'",
        id="a stop at a parameter",
    ),
    pytest.param(
        "plan:\n- stop: blocks",
        "plan.yaml:2: rule 1: cell 'blocks' is a CellList, which is never called itself; "
        "wrap its items: 'blocks.*'",
        id="a stop at a list of cells",
    ),
    pytest.param(
        "plan:\n- freeze: [conv1, '!head']",
        "plan.yaml:2: rule 1: pattern '!head' takes away none of the 1 chosen before it; "
        "put it behind the pattern that it narrows, or drop it",
        id="an exception to nothing",
    ),
    pytest.param(
        "plan:\n- freeze: norm.moving_mean",
        "plan.yaml:2: rule 1 (freeze 'norm.moving_mean') takes norm.moving_mean, "
        "which the model made untrainable; name a weight",
        id="statistics alone",
    ),
    pytest.param(
        "plan:\n- hold: head\n  rows: [0]\n- update: head\n  fn: clip\n  args: [0, 1]",
        "plan.yaml:4: rule 2 (update 'head') changes weights that rule 1 holds; "
        "drop one of them, or add force: true",
        id="an update of what is held",
    ),
    pytest.param(
        "plan:\n- freeze: conv1\n- unfreeze: conv2",
        "plan.yaml:3: rule 2 (unfreeze 'conv2') takes nothing away: no freeze rule before it "
        "keeps any of these; put it behind one, or drop it",
        id="an unfreeze of what moves",
    ),
    pytest.param(
        "plan:\n- freeze: conv1\n- freeze: '*.weight'",
        "plan.yaml:2: rule 1 (freeze 'conv1') decides nothing: rule 2 behind it overrides all of "
        "it; drop one, or put it behind",
        id="a rule that later ones override",
    ),
    pytest.param(
        "plan:\n- freeze: '*'",
        "plan.yaml:2: rule 1 keeps all 10 weights, nothing is left to train; "
        "freeze less, or unfreeze some behind it",
        id="everything frozen",
    ),
    pytest.param(
        "plan:\n- hold: '*'",
        "plan.yaml:2: rule 1 (hold '*') holds all that trains, and nothing moves; hold less",
        id="everything held",
    ),
    pytest.param(
        "plan:\n- hold: head\nstages:\n- train: head\n  epochs: 1\n- train: the rest",
        "plan.yaml:2: rule 1 (hold 'head') holds all that stage 1 trains, and nothing moves; "
        "hold less",
        id="a stage of what is held",
    ),
    pytest.param(
        "plan:\n- freeze: head\n- group: head\n  lr_scale: 0.1",
        "plan.yaml:3: rule 2 (group 'head') takes only weights that rule 1 keeps throughout; "
        "drop one of them",
        id="a group of frozen weights",
    ),
    pytest.param(
        "plan:\n- hold: conv1\nstages:\n- train: head",
        "plan.yaml:2: rule 1 (hold 'conv1') takes only weights that every stage keeps throughout; "
        "drop one of them",
        id="a hold that no stage trains",
    ),
    pytest.param(
        "plan:\n- freeze: head\n- update: head\n  fn: non_negative",
        "plan.yaml:3: rule 2 (update 'head') changes weights that rule 1 keeps; "
        "drop one of them, or add force: true",
        id="F5: an update of frozen weights",
    ),
    pytest.param(
        "updates: {conv1: non_negative}\nstages:\n- train: head\n  epochs: 1\n- train: the rest",
        "plan.yaml:1: update 1 (update 'conv1') changes conv1.weight, which stage 1 keeps; "
        "train them there too, or add force: true",
        id="an update of what a stage keeps",
    ),
    pytest.param(
        "plan:\n- stop: conv1\n- scale: conv1\n  by: 0.1",
        "plan.yaml:3: rule 2 (scale 'conv1') multiplies a gradient that rule 1 stops; "
        "drop one of them",
        id="a factor for a gradient that is stopped",
    ),
    pytest.param(
        "plan:\n- hold: head\n  rows: [1, 2]",
        "plan.yaml:3: rows [1, 2] of rule 1: 'head.weight' has 2 rows and no row 2; give 0 to 1",
        id="a row that is not there",
    ),
    pytest.param(
        "plan:\n- update: head\n  fn: clip",
        "plan.yaml:3: rule 1: fn 'clip' does not take args {}: missing a required argument: 'low'; "
        "it takes (low, high)",
        id="a ready rule without its arguments",
    ),
    pytest.param(
        "plan:\n- update: head\n  fn: clip\n  args: [1, -1]",
        "plan.yaml:3: rule 1: fn 'clip' with args [1, -1]: low 1 is not below high -1; "
        "give clip(low, high)",
        id="arguments that the ready rule refuses",
    ),
    pytest.param(
        "plan:\n- update: head\n  fn: mine.py:grwo",
        "plan.yaml:3: rule 1: fn 'mine.py:grwo': mine.py has no function 'grwo'; "
        "did you mean 'grow'?",
        id="a misspelt function of a file",
    ),
    pytest.param(
        "plan:\n- update: head\n  fn: yours.py:grow",
        "plan.yaml:3: rule 1: file 'yours.py' is not in '.'; give a path from there",
        id="a file that is not there",
    ),
    pytest.param(
        "plan:\n- freeze: conv1\nstages:\n- train: [head, conv1]",
        "plan.yaml:4: stage 1 trains conv1.weight, which rule 1 keeps; "
        "unfreeze them behind that, or name them in no stage",
        id="a stage that trains what a rule keeps",
    ),
    pytest.param(
        "plan:\n- freeze: conv1\nstages:\n- freeze: conv1.weight",
        "plan.yaml:4: stage 1 freezes 'conv1.weight', which rule 1 keeps already; "
        "name more, or drop it",
        id="a stage that freezes what a rule keeps",
    ),
    pytest.param(
        "stages:\n- train: rest",
        "plan.yaml:2: stage 1 names 'rest', which is no weight; write 'the rest'",
        id="nearly the rest",
    ),
    pytest.param(
        "stages:\n- train: '*'\n  epochs: 1\n- train: the rest",
        "plan.yaml:4: stage 2 trains the rest, and nothing is left; drop it",
        id="a rest of nothing",
    ),
    pytest.param(
        "stages:\n- freeze: '*'",
        "plan.yaml:2: stage 1 freezes '*' and leaves nothing to train; name less",
        id="a stage that freezes all",
    ),
    pytest.param(
        "stages:\n- train: norm.moving_mean",
        "plan.yaml:2: stage 1 (train 'norm.moving_mean') takes no weight that the model made "
        "trainable; name one",
        id="a stage of statistics",
    ),
]


@pytest.mark.parametrize(("text", "message"), NETWORK)
def test_a_broken_plan_is_refused_with_file_line_and_remedy(text, message):
    assert str(refused(text)) == message


def test_all_problems_of_the_keys_come_at_once_in_the_order_of_their_lines():
    error = refused(
        "stages:\n- train: head\n  epoch: 2\nplan:\n- frezze: conv1\n- freeze: 1.0\n"
        "- group: head\n  lr_scale: x\n"
    )
    assert str(error).splitlines() == [
        "plan.yaml:3: key 'epoch' of stage 1 is unknown; did you mean 'epochs'?",
        "plan.yaml:5: key 'frezze' of rule 1 is unknown; did you mean 'freeze'?",
        "plan.yaml:6: freeze 1.0 of rule 2 is a number to YAML; put the name in quotes, as '1.0'",
        "plan.yaml:8: lr_scale 'x' of rule 3 is no number; give 0 or more",
    ]
    assert [(p.file, p.line) for p in error.problems] == [("plan.yaml", n) for n in (3, 5, 6, 8)]


def test_all_problems_with_the_network_come_at_once():
    error = refused(
        "plan:\n- freeze: conv9\n- stop: conv1.weight\n- freeze: head\n"
        "- hold: head\nstages:\n- train: body\n"
    )
    assert [(p.line, re.split(":| of them", p.message)[0]) for p in error.problems] == [
        (2, "rule 1"),
        (3, "rule 2"),
        (5, "rule 4 (hold 'head') takes only weights that rule 3 keeps throughout; drop one"),
        (7, "stage 1"),
    ]


def test_a_weight_whose_flag_was_off_before_is_told_apart_from_a_statistic():
    net = Small()
    net.head.bias.requires_grad = False
    # a freeze keeps it all the same, and its layer's behaviour
    mg.Plan.from_dict({"plan": [{"freeze": "head.bias"}]}).check(net)
    plan = mg.Plan.from_dict({"plan": [{"group": "head.bias", "lr_scale": 0.5}]})
    with pytest.raises(mg.PlanError, match="with requires_grad False before msgrad saw") as caught:
        plan.check(net)
    assert str(caught.value) == (
        "rule 1 (group 'head.bias') takes head.bias, with requires_grad False before msgrad saw "
        "it; drop the rule, or mg.unfreeze(…, force=True) first"
    )
    mg.unfreeze(net, "head.bias", force=True)
    plan.check(net)


def test_a_plan_from_python_has_no_lines():
    with pytest.raises(mg.PlanError, match=r"^key 'at' does not belong to rule 1;") as caught:
        mg.Plan.from_dict({"plan": [{"freeze": "conv1", "at": "output"}]})
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (None, None)
    assert str(caught.value) == problem.message


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(mg.PlanError, match=r"^none\.yaml: the file cannot be read: No such file"):
        mg.Plan.from_file("none.yaml")


def test_nothing_is_changed_where_a_plan_is_refused():
    net = Small()
    plan = mg.Plan.from_dict({"plan": [{"freeze": "conv1"}, {"stop": "norm"}, {"freeze": "no"}]})
    with pytest.raises(mg.PlanError, match="pattern 'no' matched none"):
        plan.apply(net)
    assert mg.frozen_state(net) == "trainable"
    assert mg.wrapped(net) == []
