"""Values of a plan that are not of their kind: every message whole, with its line."""

from __future__ import annotations

import pytest

from tests.plans.plan_files import refused

TYPES = [
    pytest.param(
        "plan:\n  freeze: conv1",
        "plan.yaml:1: plan {'freeze': 'conv1'} is no list; "
        "begin each with a dash, as - freeze: conv1",
        id="rules without dashes",
    ),
    pytest.param(
        "plan:\n",
        "plan.yaml:1: plan is empty; write a list, as - freeze: conv1, or drop the key",
        id="no rules",
    ),
    pytest.param(
        "plan:\n- freeze conv1",
        "plan.yaml:2: rule 1 'freeze conv1' is no mapping; write it as freeze: conv1",
        id="a rule without a colon",
    ),
    pytest.param(
        "- freeze: conv1",
        "plan.yaml:1: the file holds [{'freeze': 'conv1'}]; write plan: and the list under it",
        id="a file that is a list",
    ),
    pytest.param(
        "plan: [",
        "plan.yaml:1: the file is no YAML: expected the node content, but found '<stream end>'; "
        "write key: value lines",
        id="no YAML",
    ),
    pytest.param(
        "plan:\n- freeze:",
        "plan.yaml:2: freeze of rule 1 is empty; give it a value, or drop the key",
        id="no pattern",
    ),
    pytest.param(
        "plan:\n- freeze: []",
        "plan.yaml:2: freeze [] of rule 1 has no pattern; "
        "give a name such as conv1, or a list of names",
        id="an empty list of patterns",
    ),
    pytest.param(
        "plan:\n- freeze: 1.10",
        "plan.yaml:2: freeze 1.1 of rule 1 is a number to YAML; put the name in quotes, as '1.1'",
        id="a name that YAML reads as a number",
    ),
    pytest.param(
        "plan:\n- freeze: [conv1, on]",
        "plan.yaml:2: freeze ['conv1', True] of rule 1 holds no name; "
        "give a name such as conv1, or a list of names",
        id="a name that YAML reads as a truth",
    ),
    pytest.param(
        "plan:\n- freeze: 're:conv['",
        "plan.yaml:2: freeze of rule 1: pattern 're:conv[' is no regular expression: "
        "unterminated character set at position 7; put a backslash before what is meant literally",
        id="a broken regular expression",
    ),
    pytest.param(
        "plan:\n- freeze: conv1\n  statistics: 1",
        "plan.yaml:3: statistics 1 of rule 1 is no choice; give true or false",
        id="a number for a choice",
    ),
    pytest.param(
        "plan:\n- stop: conv1\n  at: outputs",
        "plan.yaml:3: at 'outputs' of rule 1 is unknown; did you mean 'output'?",
        id="a misspelt place",
    ),
    pytest.param(
        "plan:\n- scale: conv1\n  by: much",
        "plan.yaml:3: by 'much' of rule 1 is no number; give 0 or more",
        id="a text for a factor",
    ),
    pytest.param(
        "plan:\n- scale: conv1\n  by: -0.5",
        "plan.yaml:3: by -0.5 of rule 1 is below 0; give 0 or more, or a rule of kind reverse",
        id="a negative factor",
    ),
    pytest.param(
        "plan:\n- scale: conv1\n  by: .inf",
        "plan.yaml:3: by inf of rule 1 is not finite; give 0 or more, or a rule of kind reverse",
        id="an infinite factor",
    ),
    pytest.param(
        "plan:\n- scale: conv1",
        "plan.yaml:2: rule 1 has no factor; add by: 0.1",
        id="a scale without a factor",
    ),
    pytest.param(
        "plan:\n- group: conv1",
        "plan.yaml:2: rule 1 says nothing of the group; add lr_scale or weight_decay",
        id="a group without a word",
    ),
    pytest.param(
        "plan:\n- hold: head\n  rows: all",
        "plan.yaml:3: rows 'all' of rule 1 are no rows; give whole numbers, as [0, 1]",
        id="rows in words",
    ),
    pytest.param(
        "plan:\n- update: head",
        "plan.yaml:2: rule 1 has no function; add fn: clip, or fn: file.py:function",
        id="an update without a function",
    ),
    pytest.param(
        "plan:\n- update: head\n  fn: clipp",
        "plan.yaml:3: fn 'clipp' of rule 1 is no ready rule; did you mean 'clip'?",
        id="a misspelt ready rule",
    ),
    pytest.param(
        "plan:\n- update: head\n  fn: mine.py",
        "plan.yaml:3: fn 'mine.py' of rule 1 is no ready rule; "
        "name a function in it, as mine.py:grow",
        id="a file without a function",
    ),
    pytest.param(
        "plan:\n- update: head\n  fn: soft_update",
        "plan.yaml:3: fn 'soft_update' of rule 1 is no ready rule; "
        "it needs another network: write a function, as fn: file.py:function",
        id="a ready rule that needs a network",
    ),
    pytest.param(
        "plan:\n- update: head\n  fn: non_negative\n  when: after",
        "plan.yaml:4: when 'after' of rule 1 is unknown; did you mean 'after_step'?",
        id="a misspelt point of a step",
    ),
    pytest.param(
        "updates: clip",
        "plan.yaml:1: updates 'clip' is no mapping; write it as fc1: file.py:function",
        id="updates without patterns",
    ),
    pytest.param(
        "updates:\n  head: nonegative",
        "plan.yaml:2: fn 'nonegative' of update 1 is no ready rule; did you mean 'non_negative'?",
        id="a misspelt function in updates",
    ),
    pytest.param(
        "updates:\n  when: afterstep\n  rules: {head: non_negative}",
        "plan.yaml:2: when 'afterstep' of updates is unknown; did you mean 'after_step'?",
        id="a misspelt point in updates",
    ),
    pytest.param(
        "audit: true",
        "plan.yaml:1: audit True is no mapping; write key: value lines",
        id="an audit that is a truth",
    ),
    pytest.param(
        "audit:\n  steps: 0",
        "plan.yaml:2: steps 0 of audit is below 1; give 1 or more",
        id="an audit of no steps",
    ),
]


@pytest.mark.parametrize(("text", "message"), TYPES)
def test_a_broken_plan_is_refused_with_file_line_and_remedy(text, message):
    assert str(refused(text)) == message
