"""The page about updates is true: its programs, its plans, each ready rule in Python and YAML."""

from __future__ import annotations

import re
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import yaml
from mindspore import Tensor, nn

import msgrad as mg
from msgrad.plans._user_code import Functions
from tests.documents.documents import ROOT, blocks_of, parts, printed_by

DOCUMENT = "docs/updates.md"
TEXT = (ROOT / DOCUMENT).read_text(encoding="utf-8")
RULES = re.findall(r"^\| `((\w+)\(.*?\))` \| .+? \| (.+?) \| (.+?) \|$", TEXT, re.MULTILINE)
SHOWN = [row for row in RULES if row[3].startswith("`")]
IN_YAML = [row for row in RULES if row[2].startswith("`")]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return printed_by(DOCUMENT, tmp_path_factory.mktemp("updates"))


@pytest.mark.parametrize("number", range(len(blocks_of(DOCUMENT))))
def test_a_program_of_the_page_prints_what_it_says(printed: list[str], number: int):
    assert printed[number] == blocks_of(DOCUMENT)[number][1]


def changed(rule: object) -> np.ndarray:
    """Return what a rule makes of the weight of the table."""
    net = nn.Dense(2, 2, Tensor([[6.0, 8.0], [0.0, -1.0]]), has_bias=False)
    mg.update_weights(net, {"weight": rule}, compiled=False)
    return net.weight.asnumpy()


def test_every_ready_rule_has_a_row():
    assert sorted(name for _, name, _, _ in RULES) == mg.rules.__all__


@pytest.mark.parametrize(("call", "_name", "_yaml", "gives"), SHOWN)
def test_a_ready_rule_gives_what_its_row_says(call: str, _name: str, _yaml: str, gives: str):
    space = {**vars(mg.rules), "other": nn.Dense(2, 2, "zeros", has_bias=False)}
    shown = yaml.safe_load(re.findall("`(.+?)`", gives)[0])
    np.testing.assert_allclose(changed(eval(call, space)), shown, rtol=1e-6)


@pytest.mark.parametrize(("call", "_name", "written", "_gives"), IN_YAML)
def test_a_ready_rule_is_the_same_in_yaml(call: str, _name: str, written: str, _gives: str):
    rule = yaml.safe_load(written.strip("`"))
    mg.Plan.from_dict({"plan": [{"update": "weight", **rule}]})
    made = Functions(Path()).of(rule["fn"], rule.get("args"))
    np.testing.assert_array_equal(changed(made), changed(eval(call, {**vars(mg.rules)})))


MY_RULES = """
def halve(w):
    return 0.5 * w


def scaled(factor):
    def rule(w):
        return factor * w

    return rule
"""


def names_by_when(text: str, folder: Path) -> dict[str, list[str]]:
    """Return what a plan updates at each point of a step, in a network of a body and a head."""
    (folder / "my_rules.py").write_text(MY_RULES, encoding="utf-8")
    (folder / "plan.yaml").write_text(text, encoding="utf-8")
    layers = {"body": nn.Dense(2, 2), "head": nn.Dense(2, 1)}
    net = nn.SequentialCell(OrderedDict(layers))
    plan = mg.Plan.from_file(str(folder / "plan.yaml"))
    step = plan.train_step(net, nn.SGD, nn.MSELoss(), lr=0.1)
    return {update.when: update.names for update in step.updates}


def test_the_rules_in_a_file_change_what_they_name_at_their_points(tmp_path: Path):
    (found, short) = (names_by_when(text, tmp_path) for text in parts(TEXT, "yaml"))
    body, head = (["body.weight", "body.bias"], ["head.weight", "head.bias"])
    assert found == {"after_step": [*body, "head.weight"], "before_forward": head}
    assert short == {"before_forward": head}
