"""Keys and stages of a plan that are not meant so: every message whole, with its line."""

from __future__ import annotations

import pytest

from tests.plans.plan_files import refused

KEYS = [
    pytest.param(
        "plan:\n- freez: conv1",
        "plan.yaml:2: key 'freez' of rule 1 is unknown; did you mean 'freeze'?",
        id="D5: a misspelt kind",
    ),
    pytest.param(
        "plan:\n- free: 22",
        "plan.yaml:2: key 'free' of rule 1 is unknown; did you mean 'freeze'?",
        id="D5: free=22",
    ),
    pytest.param(
        "freeze: [conv1]",
        "plan.yaml:1: key 'freeze' does not belong to the file; "
        "write it under 'plan', as - freeze: …",
        id="D5: a rule at the top",
    ),
    pytest.param(
        "plan:\n- freeze: conv1\n  at: output",
        "plan.yaml:3: key 'at' does not belong to rule 1; it is a field of stop, scale and reverse",
        id="D5: a field of other kinds",
    ),
    pytest.param(
        "plan:\n- freeze: conv1\n  epochs: 2",
        "plan.yaml:3: key 'epochs' does not belong to rule 1; write it in a stage, under 'stages'",
        id="D5: a key of a stage in a rule",
    ),
    pytest.param(
        "plan:\n- freeze: conv1\n  seed: 2",
        "plan.yaml:3: key 'seed' does not belong to rule 1; write it at the top of the file",
        id="D5: a key of the run in a rule",
    ),
    pytest.param(
        "stages:\n- train: head\n  stop: conv1",
        "plan.yaml:3: key 'stop' does not belong to stage 1; write it as a rule, under 'plan'",
        id="D5: a rule in a stage",
    ),
    pytest.param(
        "stages:\n- train: head\n  epoch: 1",
        "plan.yaml:3: key 'epoch' of stage 1 is unknown; did you mean 'epochs'?",
        id="D5: a misspelt key of a stage",
    ),
    pytest.param(
        "plans:\n- freeze: conv1",
        "plan.yaml:1: key 'plans' of the file is unknown; did you mean 'plan'?",
        id="a misspelt key at the top",
    ),
    pytest.param(
        "plan:\n- group: conv1\n  weight_decy: 0.1",
        "plan.yaml:3: key 'weight_decy' of rule 1 is unknown; did you mean 'weight_decay'?",
        id="a misspelt field",
    ),
    pytest.param(
        "plan:\n- group: conv1\n  learning_rate: 0.1",
        "plan.yaml:3: key 'learning_rate' does not belong to rule 1; "
        "it is a key of 'optimizer'; write lr_scale in a rule of kind group",
        id="a rate in a group",
    ),
    pytest.param(
        "audit:\n  step: 3",
        "plan.yaml:2: key 'step' of audit is unknown; did you mean 'steps'?",
        id="a misspelt key of the audit",
    ),
    pytest.param(
        "plan:\n- freeze: conv1\nplan:\n- freeze: conv2",
        "plan.yaml:3: key 'plan' stands twice, first in line 1; keep one of them",
        id="a key twice",
    ),
    pytest.param(
        "plan:\n- freeze: conv1\n  freeze: conv2",
        "plan.yaml:3: key 'freeze' stands twice, first in line 2; keep one of them",
        id="a kind twice in one rule",
    ),
    pytest.param(
        "plan:\n- freeze: conv1\n  stop: conv2",
        "plan.yaml:2: rule 1 has 2 kinds, freeze and stop; write a rule each",
        id="two kinds in one rule",
    ),
    pytest.param(
        "plan:\n- at: output",
        "plan.yaml:2: rule 1 has 'at' and no kind; "
        "give one of freeze, unfreeze, stop, scale, reverse, group, update, hold",
        id="a rule without a kind",
    ),
]
STAGES = [
    pytest.param(
        "stages: {train: head}",
        "plan.yaml:1: stages {'train': 'head'} is no list; "
        "begin each with a dash, as - {train: head, epochs: 2}",
        id="stages without dashes",
    ),
    pytest.param(
        "stages:\n- epochs: 1",
        "plan.yaml:2: stage 1 has neither of train and freeze; give one of the two",
        id="a stage of nothing",
    ),
    pytest.param(
        "stages:\n- train: head\n  freeze: conv1",
        "plan.yaml:2: stage 1 has both of train and freeze; give one of the two",
        id="a stage of both",
    ),
    pytest.param(
        "stages:\n- train: head\n  epochs: 1\n  steps: 5",
        "plan.yaml:4: stage 1 has epochs 1 and steps 5; give one of the two",
        id="two lengths",
    ),
    pytest.param(
        "stages:\n- train: head\n  epochs: 1.5",
        "plan.yaml:3: epochs 1.5 of stage 1 is no whole number; give 0 or more",
        id="half an epoch",
    ),
    pytest.param(
        "stages:\n- train: head\n  epochs: -1",
        "plan.yaml:3: epochs -1 of stage 1 is below 0; give 0 or more",
        id="a negative length",
    ),
    pytest.param(
        "stages:\n- train: head\n- train: the rest",
        "plan.yaml:2: stage 1 of 2 has no length; add epochs: 1, only the last may be open",
        id="an open stage that is not the last",
    ),
    pytest.param(
        "stages:\n- {train: head, steps: ten}\n- {train: '*'}",
        "plan.yaml:2: steps 'ten' of stage 1 is no whole number; give 0 or more",
        id="a length that is no number, and no more",
    ),
    pytest.param(
        "stages:\n- {train: head, epcohs: 2}\n- {train: '*'}",
        "plan.yaml:2: key 'epcohs' of stage 1 is unknown; did you mean 'epochs'?",
        id="a length that is misspelt, and no more",
    ),
    pytest.param(
        "stages:\n- train: head\n  epochs: 1\n- train: conv1\n  steps: 10",
        "plan.yaml:5: stage 2 is counted in steps and stage 1 in epochs; give all lengths in one",
        id="lengths in both units",
    ),
    pytest.param(
        "stages:\n- train: [head, the rest]",
        "plan.yaml:2: stage 1 names weights beside 'the rest', which it holds; give one",
        id="the rest and more",
    ),
    pytest.param(
        "stages:\n- freeze: the rest",
        "plan.yaml:2: stage 1 freezes 'the rest', which can only be trained; name it",
        id="freeze the rest",
    ),
    pytest.param(
        "stages:\n- train: head\n  cumulative: true",
        "plan.yaml:3: stage 1 is cumulative and no stage stands before it; drop cumulative",
        id="cumulative from the start",
    ),
    pytest.param(
        "stages:\n- train: head\n  epochs: 1\n- freeze: head\n  cumulative: true",
        "plan.yaml:5: stage 2 is cumulative and freezes: only train adds up; drop cumulative",
        id="a cumulative freeze",
    ),
]


@pytest.mark.parametrize(("text", "message"), [*KEYS, *STAGES])
def test_a_broken_plan_is_refused_with_file_line_and_remedy(text, message):
    assert str(refused(text)) == message
