"""The last rule that takes a thing decides each field: drawn rules against a plain loop."""

from __future__ import annotations

import random
import re
from fnmatch import fnmatchcase
from typing import Any

import pytest
from mindspore import Tensor, nn

import msgrad as mg
from msgrad.plans import ResolvedRules
from tests.nets.plan_nets import Small
from tests.nets.shared import Tied

PATTERNS = ["conv1", "*.weight", "*.bias", "norm", "blocks.*", "blocks.1", "head", "*", "*.gamma"]
STATISTICS = ("norm.moving_mean", "norm.moving_variance")
KINDS: dict[str, Any] = {
    "freeze": lambda draw: {"statistics": draw.random() < 0.5} if draw.random() < 0.5 else {},
    "unfreeze": lambda draw: {},
    "group": lambda draw: draw.choice(
        [
            {"lr_scale": draw.randint(1, 9)},
            {"weight_decay": 0.5},
            {"lr_scale": 3, "weight_decay": 0},
        ]
    ),
    "hold": lambda draw: {},
}


def drawn_rules(draw: random.Random) -> list[dict]:
    rules = []
    for _ in range(draw.randint(1, 7)):
        kind = draw.choice(list(KINDS))
        rules.append({kind: draw.choice(PATTERNS), **KINDS[kind](draw)})
    return rules


def takes(pattern: str, name: str) -> bool:
    """Match one name, or a cell that it lies in, with nothing of msgrad."""
    parts = name.split(".")
    prefixes = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(fnmatchcase(prefix, pattern) for prefix in prefixes)


def fields_of(rules: list[dict], name: str) -> dict:
    """Walk the rules in order; each writes its fields over those before it."""
    found: dict = {}
    for rule in rules:
        (kind, pattern), *said = rule.items()
        if takes(pattern, name):
            found.update(said)
            if kind in ("freeze", "unfreeze"):
                found["frozen"] = kind == "freeze"
            if kind == "hold":
                found["hold rows"] = None
    return found


@pytest.mark.parametrize("seed", range(40))
def test_every_field_of_every_weight_is_that_of_the_last_rule(seed):
    rules = drawn_rules(random.Random(seed))
    fates = ResolvedRules(mg.Plan.from_dict({"plan": rules}).rules, Small())
    for thing, parameter in enumerate(fates.parameters.members):
        decided = {
            field: fates.says(by[thing], field) for field, by in fates.winner.items() if thing in by
        }
        statistic = parameter.name in STATISTICS
        assert decided == ({} if statistic else fields_of(rules, parameter.name)), rules


TIED = [
    pytest.param([{"freeze": "embedding"}], id="by its first path"),
    pytest.param([{"freeze": "output.weight"}], id="by its second path"),
    pytest.param([{"freeze": "embedding"}, {"freeze": "output"}], id="by both, alike"),
    pytest.param([{"freeze": "*"}, {"unfreeze": ["middle", "output.bias"]}], id="by a pattern"),
]


@pytest.mark.parametrize("rules", TIED)
def test_e1_a_tied_weight_is_frozen_by_either_path(rules):
    net = Tied()
    frozen = mg.Plan.from_dict({"plan": rules}).apply(net).frozen
    assert "embedding.table" in frozen
    assert "middle.weight" not in frozen


DISAGREE = [
    pytest.param(
        [{"freeze": "embedding"}, {"unfreeze": "output.weight"}],
        "rule 1 reaches 'embedding.table' and says freeze, rule 2 reaches the same weight as "
        "'output.weight' and says unfreeze; make them agree, or drop one",
        id="freeze and unfreeze",
    ),
    pytest.param(
        [{"group": "output", "lr_scale": 0.1}, {"group": "embedding", "lr_scale": 0.2}],
        "rule 1 reaches 'output.weight' and says lr_scale 0.1, rule 2 reaches the same weight as "
        "'embedding.table' and says lr_scale 0.2; make them agree, or drop one",
        id="two rates",
    ),
]


@pytest.mark.parametrize(("rules", "message"), DISAGREE)
def test_e1_two_rules_that_disagree_over_a_tied_weight_raise(rules, message):
    plan = mg.Plan.from_dict({"plan": rules})
    net = Tied()
    with pytest.raises(mg.ConflictError, match=f"^{re.escape(message)}$") as caught:
        plan.apply(net)
    assert isinstance(caught.value, mg.PlanError)
    assert mg.frozen_state(net) == "trainable"


def test_the_last_rule_wins_where_one_of_two_reaches_a_tied_weight_by_both_paths():
    net = Tied()
    plan = mg.Plan.from_dict({"plan": [{"freeze": "*"}, {"unfreeze": "output"}]})
    assert "embedding.table" not in plan.apply(net).frozen


class Siamese(nn.Cell):
    """One cell at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2))
        self.right = self.left
        self.head = nn.Dense(2, 1)

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head(self.left(x) - self.right(y))


def test_two_rules_that_disagree_over_a_cell_at_two_places_raise():
    plan = mg.Plan.from_dict({"plan": [{"stop": "left.0"}, {"stop": "right.0", "at": "input"}]})
    with pytest.raises(
        mg.ConflictError, match="says stop at output, rule 2 reaches the same cell"
    ) as caught:
        plan.check(Siamese())
    assert str(caught.value) == (
        "rule 1 reaches 'left.0' and says stop at output, rule 2 reaches the same cell as "
        "'right.0' and says stop at input; make them agree, or drop one"
    )


def test_a_cell_at_two_places_is_wrapped_once_at_both():
    net = Siamese()
    applied = mg.Plan.from_dict({"plan": [{"scale": "right.1", "by": 0.5}]}).apply(net)
    assert applied.wrapped == ["left.1", "right.1"]
    assert net.left[1] is net.right[1]
    applied.undo()
    assert mg.wrapped(net) == []


def test_rules_inside_what_other_rules_take_act_both():
    net = Siamese()
    plan = mg.Plan.from_dict({"plan": [{"scale": "left", "by": 0.5}, {"stop": "left.0"}]})
    plan.apply(net)
    paths = [path for path, _ in mg.wrapped(net)]
    assert paths == ["left", "left.0", "right", "right.0"]


def test_an_exception_within_a_rule_is_none_for_the_rules_around_it():
    plan = mg.Plan.from_dict(
        {"plan": [{"freeze": ["*", "!blocks"]}, {"unfreeze": ["conv1", "conv2"]}]}
    )
    assert plan.apply(Small()).frozen == ["norm.gamma", "norm.beta", "head.weight", "head.bias"]
