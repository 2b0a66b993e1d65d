"""Parameter groups: rates and decays by rules, against steps worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.experimental import optim

import msgrad as mg


class Net(nn.Cell):
    """A weight whose name has `beta` in it, a norm, and plain layers."""

    def __init__(self) -> None:
        super().__init__()
        self.alphabeta = nn.Dense(2, 2)
        self.norm = nn.LayerNorm((2,))
        self.head = nn.Dense(2, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.alphabeta(x)))


def names(groups: list[dict]) -> list[list[str]]:
    return [[p.name for p in group["params"]] for group in groups]


def fields(groups: list[dict]) -> dict[str, tuple[float, float]]:
    return {p.name: (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}


def test_fields_compose_and_the_last_match_wins_for_each_field():
    rules = {
        "*": {"weight_decay": 0.1},
        "head": {"lr_scale": 0.5},
        "*.bias": {"weight_decay": 0.0},
        "head.bias": {"lr_scale": 2.0},
    }
    assert fields(mg.param_groups(Net(), rules, lr=0.1, weight_decay=9.0)) == {
        "alphabeta.weight": (0.1, 0.1),
        "alphabeta.bias": (0.1, 0.0),
        "norm.gamma": (0.1, 0.1),
        "norm.beta": (0.1, 0.1),
        "head.weight": (0.05, 0.1),
        "head.bias": (0.2, 0.0),
    }


def test_no_rule_gives_one_group_in_network_order():
    net = Net()
    groups = mg.param_groups(net, {}, lr=0.1, weight_decay=0.2)
    assert names(groups) == [[p.name for p in net.trainable_params()]]
    assert (groups[0]["lr"], groups[0]["weight_decay"]) == (0.1, 0.2)


def test_every_weight_is_in_exactly_one_group_and_none_is_empty():
    net = Net()
    mg.freeze(net, "head")
    rules = {"head": {"lr_scale": 3.0}, mg.no_decay(net): {"weight_decay": 0.0}}
    groups = mg.param_groups(net, rules, lr=0.1, weight_decay=0.2)
    assert names(groups) == [
        ["alphabeta.weight"],
        ["alphabeta.bias", "norm.gamma", "norm.beta"],
    ]


def test_the_list_that_is_passed_on_is_grouped_whatever_the_flags():
    net = Net()
    mg.freeze(net, "norm")
    passed = [net.norm.gamma, net.head.weight]
    before = [p.requires_grad for p in net.get_parameters()]
    groups = mg.param_groups(net, {"norm": {"lr_scale": 0.0}}, lr=0.1, parameters=passed)
    assert fields(groups) == {"norm.gamma": (0.0, 0.0), "head.weight": (0.1, 0.0)}
    assert [p.requires_grad for p in net.get_parameters()] == before


def test_the_usual_choice_without_decay_is_biases_and_norm_weights():
    net = nn.SequentialCell(nn.Conv2d(1, 2, 3, has_bias=True), nn.BatchNorm2d(2), nn.Dense(2, 2))
    assert mg.no_decay(net).names == ["0.bias", "1.gamma", "1.beta", "2.bias"]


def test_layers_near_the_input_get_a_lower_rate_and_the_rest_the_full_one():
    groups = mg.layer_decay(
        Net(),
        [["alphabeta"], "head.weight"],
        lr=1.0,
        decay=0.25,
        weight_decay=0.1,
        rules={"*.bias": {"weight_decay": 0.0}},
    )
    assert fields(groups) == {
        "alphabeta.weight": (0.25, 0.1),
        "alphabeta.bias": (0.25, 0.0),
        "norm.gamma": (1.0, 0.1),
        "norm.beta": (1.0, 0.1),
        "head.weight": (1.0, 0.1),
        "head.bias": (1.0, 0.0),
    }


OPTIMIZERS = [
    pytest.param(lambda groups: nn.SGD(groups, 0.3, weight_decay=0.5), id="sgd"),
    pytest.param(lambda groups: nn.Momentum(groups, 0.3, 0.0, weight_decay=0.5), id="momentum"),
    pytest.param(lambda groups: optim.SGD(groups, 0.3, weight_decay=0.5), id="experimental-sgd"),
]
RULES = {"*.bias": {"weight_decay": 0.0}, "norm": {"weight_decay": 0.0}, "head": {"lr_scale": 0.5}}


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("reverse", [False, True], ids=["in-order", "reversed"])
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_decay_is_really_zero_where_a_rule_says_so(make: Callable, reverse: bool):
    net = Net()
    weights = net.trainable_params()
    start = {p.name: p.asnumpy().copy() for p in weights}
    passed = weights[::-1] if reverse else weights
    optimizer = make(mg.param_groups(net, RULES, lr=0.1, weight_decay=0.2, parameters=passed))
    gradients = {p.name: np.full(p.shape, 0.25, np.float32) for p in weights}
    optimizer(tuple(Tensor(gradients[p.name]) for p in optimizer.parameters))
    for parameter in weights:
        name = parameter.name
        rate = 0.05 if name.startswith("head") else 0.1
        decay = 0.2 if name.endswith("weight") else 0.0
        expected = start[name] - rate * (gradients[name] + decay * start[name])
        np.testing.assert_allclose(parameter.asnumpy(), expected, rtol=1e-5, err_msg=name)


SCHEDULES = [
    pytest.param([0.4, 0.2, 0.1], id="list"),
    pytest.param(np.array([0.4, 0.2, 0.1], np.float32), id="array"),
    pytest.param(Tensor([0.4, 0.2, 0.1], ms.float32), id="tensor"),
    pytest.param(nn.ExponentialDecayLR(0.4, 0.5, 1), id="schedule"),
]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("lr", SCHEDULES)
def test_a_rate_that_changes_by_step_is_scaled_at_every_step(lr: object):
    net = Net()
    groups = mg.param_groups(net, {"head": {"lr_scale": 0.5}}, lr=lr)
    optimizer = nn.SGD(groups, lr)
    gradient = tuple(ops.ones_like(p) for p in optimizer.parameters)
    moved = []
    for _ in range(3):
        before = [w.asnumpy().copy() for w in (net.alphabeta.weight, net.head.weight)]
        optimizer(gradient)
        after = [w.asnumpy() for w in (net.alphabeta.weight, net.head.weight)]
        moved.append([float((b - a).mean()) for b, a in zip(before, after, strict=True)])
    np.testing.assert_allclose(moved, [[0.4, 0.2], [0.2, 0.1], [0.1, 0.05]], rtol=1e-4)


def test_a_step_builds_its_groups_anew_for_each_stage():
    net = Net()
    sizes = []

    def make(parameters: list[Parameter]) -> nn.Cell:
        groups = mg.param_groups(net, RULES, lr=0.1, weight_decay=0.2, parameters=parameters)
        sizes.append([len(group["params"]) for group in groups])
        return nn.SGD(groups, 0.1)

    step = mg.TrainStep(net, make, nn.MSELoss(), unreached="allow")
    mg.freeze(net, "alphabeta", "norm")
    assert step.trainable == ["head.weight", "head.bias"]
    assert sizes == [[1, 3, 1, 1], [1, 1]]


WRONG = [
    pytest.param({"head": {"lr_scal": 1}}, r"unknown field 'lr_scal'; did you mean", id="field"),
    pytest.param(
        {"head": {"lr_scale": -0.1}},
        r"rule 'head' has lr_scale -0\.1; give 0 or more, or freeze 'head' to hold it",
        id="negative",
    ),
    pytest.param({"head": {"weight_decay": float("nan")}}, r"weight_decay nan", id="nan"),
    pytest.param({"head": {"weight_decay": "0"}}, r"'0', which is no number", id="string"),
    pytest.param({"head": 0.1}, r"rule 'head' is 0\.1; give a dict", id="no-dict"),
    pytest.param({"haed": {"lr_scale": 1}}, r"'haed' matched none of 6.*'head'", id="name"),
]


@pytest.mark.parametrize(("rules", "message"), WRONG)
def test_a_rule_that_cannot_be_used_is_refused(rules: dict, message: str):
    with pytest.raises(ValueError, match=message):
        mg.param_groups(Net(), rules, lr=0.1)


def test_nothing_to_group_is_refused():
    net = Net()
    mg.freeze(net, "*")
    with pytest.raises(ValueError, match="nothing to group: none of 6 parameters trains now"):
        mg.param_groups(net, {}, lr=0.1)


def test_parameters_of_another_network_are_refused():
    other = nn.Dense(2, 2)
    with pytest.raises(ValueError, match=r"parameters has 2 that net does not hold: weight, bias"):
        mg.param_groups(Net(), {}, lr=0.1, parameters=other.trainable_params())


@pytest.mark.parametrize("decay", [0, -1.0], ids=["zero", "negative"])
def test_a_layer_decay_that_is_not_above_zero_is_refused(decay: float):
    with pytest.raises(ValueError, match=r"decay"):
        mg.layer_decay(Net(), ["head"], lr=0.1, decay=decay)
