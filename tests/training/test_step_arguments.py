"""What a TrainStep refuses when it is made: the fact, the remedy, and nothing compiled."""

from __future__ import annotations

from typing import Any

import pytest
from mindspore import Parameter, nn

import msgrad as mg
from tests.nets.step_nets import (
    Line,
    Spare,
    Trap,
    Twins,
    TwoInputs,
    batches,
    mean_square,
    momentum,
    step_over,
)


def loss(x: object) -> object:
    return x


def plain_step() -> nn.Cell:
    net = Line()
    return nn.TrainOneStepCell(net, momentum(net.trainable_params()))


PLAIN = plain_step()


def trains_itself(x: object) -> object:
    return PLAIN(x)


def plus_one(parameters: list[Parameter]) -> nn.Cell:
    return momentum([*parameters, Parameter(parameters[0].asnumpy(), name="extra")])


def without_bias(parameters: list[Parameter]) -> nn.Cell:
    return momentum([p for p in parameters if p.name != "encoder.head.bias"])


REFUSED = [
    pytest.param(
        lambda: mg.TrainStep(Line(), momentum(Line().trainable_params())),  # pyright: ignore
        TypeError,
        r"optimizer is an instance of Momentum, whose parameters are fixed; .* p: Momentum\(p",
        id="optimizer-instance",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), 0.1),  # pyright: ignore
        TypeError,
        r"optimizer 0\.1 cannot be called; give a function \(parameters\) -> optimizer",
        id="optimizer-number",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), lambda p: p),  # pyright: ignore
        TypeError,
        r"optimizer returned a list; return an optimizer of MindSpore",
        id="optimizer-returns-list",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), lambda p: nn.Dense(2, 2)),
        TypeError,
        r"optimizer returned a Dense; return an optimizer of MindSpore",
        id="optimizer-returns-cell",
    ),
    pytest.param(
        lambda: mg.TrainStep(Trap(), plus_one),
        ValueError,
        r"holds other parameters than it was given; .*\ngiven: 4: encoder.*\nholds: 5: .*, extra",
        id="optimizer-over-more",
    ),
    pytest.param(
        lambda: mg.TrainStep(Trap(), without_bias),
        ValueError,
        r"\ngiven: 4: encoder\.head\.weight, .*bias.*\nholds: 3: encoder\.head\.weight, alpha",
        id="optimizer-over-fewer",
    ),
    pytest.param(
        lambda: mg.TrainStep([], momentum),  # pyright: ignore
        TypeError,
        r"network \[\] is neither a Cell nor a function; give one of the two",
        id="network-list",
    ),
    pytest.param(
        lambda: mg.TrainStep(loss, momentum),  # pyright: ignore
        TypeError,
        r"net None is no Cell; with a function give net=",
        id="function-without-net",
    ),
    pytest.param(
        lambda: mg.TrainStep(loss, momentum, nn.MSELoss(), net=Line()),  # pyright: ignore
        ValueError,
        r"loss_fn= goes with a Cell as network; a function returns the loss itself",
        id="function-with-loss",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), momentum, net=Line()),
        ValueError,
        r"net= goes with a function as network; .* leave net out",
        id="cell-with-net",
    ),
    pytest.param(
        lambda: mg.TrainStep(TwoInputs(), momentum, "mse"),  # pyright: ignore
        TypeError,
        r"loss_fn 'mse' cannot be called; give a Cell or function \(output, label\)",
        id="loss-name",
    ),
    pytest.param(
        lambda: mg.TrainStep(
            Line(),
            momentum,
            train_cell=nn.TrainOneStepCell(Line(), momentum(Line().trainable_params())),  # pyright: ignore
        ),
        TypeError,
        r"train_cell TrainOneStepCell is no class or function; .*\(network, optimizer\)",
        id="train-cell-instance",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), momentum, train_cell=lambda n, o: None),  # pyright: ignore
        TypeError,
        r"train_cell returned a NoneType; return a Cell that does one step",
        id="train-cell-returns-none",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), lambda: momentum([])),  # pyright: ignore
        mg.ArgumentTypeError,
        r"optimizer <lambda>\(\) cannot be called with one argument \(too many .*lambda p",
        id="optimizer-takes-nothing",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), nn.Momentum),  # pyright: ignore
        mg.ArgumentTypeError,
        r"Momentum cannot be made of the parameters alone \(.*'learning_rate'\); give a function",
        id="optimizer-class-that-wants-more",
    ),
    pytest.param(
        lambda: mg.TrainStep(plain_step(), momentum),
        mg.ArgumentError,
        r"network TrainOneStepCell has an optimizer of its own \(Momentum\) and does a step itself",
        id="network-is-a-train-cell",
    ),
    pytest.param(
        lambda: mg.TrainStep(step_over(Line()), momentum),
        mg.ArgumentError,
        r"network TrainStep has an optimizer of its own \(Momentum\) and does a step itself",
        id="network-is-a-step",
    ),
    pytest.param(
        lambda: mg.TrainStep(trains_itself, momentum, net=Line()),
        mg.ArgumentError,
        r"network trains_itself has an optimizer of its own \(Momentum\)",
        id="function-does-a-step",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), momentum, labels=2),
        mg.ArgumentError,
        r"labels= goes with loss_fn=",
        id="labels-without-loss",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), momentum, nn.MSELoss(), labels=0),
        mg.ArgumentError,
        r"labels 0 is below 1",
        id="no-labels",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), momentum, clip_norm="1"),  # pyright: ignore
        TypeError,
        r"clip_norm '1' is no number; give the largest norm, such as 1\.0",
        id="clip-text",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), momentum, clip_norm=True),
        TypeError,
        r"clip_norm True is no number",
        id="clip-boolean",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), momentum, clip_norm=0.0),
        ValueError,
        r"clip_norm 0\.0 is not above 0 and finite",
        id="clip-zero",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), momentum, clip_norm=float("nan")),
        ValueError,
        r"clip_norm nan is not above 0 and finite",
        id="clip-nan",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), momentum, unreached="frozen"),
        ValueError,
        r"unreached 'frozen' is unknown; give one of 'freeze', 'error', 'allow'",
        id="unreached-word",
    ),
    pytest.param(
        lambda: mg.TrainStep(Line(), momentum, trainable="d"),
        mg.NoMatchError,
        r"pattern 'd' matched none of 3 parameters",
        id="trainable-misspelt",
    ),
    pytest.param(
        lambda: mg.TrainStep(Twins(), momentum),
        mg.ConflictError,
        r"name 'weight' belongs to two parameters, at 'first\.weight' and at 'second\.weight'",
        id="two-weights-of-one-name",
    ),
]


@pytest.mark.parametrize(("make", "kind", "message"), REFUSED)
def test_an_argument_that_cannot_be_used_is_refused_with_the_remedy(
    make: Any, kind: type[Exception], message: str
):
    with pytest.raises(kind, match=message) as caught:
        make()
    assert isinstance(caught.value, mg.MsgradError)


def test_everything_frozen_is_refused_before_an_optimizer_is_made_and_names_the_rules():
    net = Trap()
    mg.freeze(net, "encoder")
    mg.freeze(net, "alphabeta", "head")
    made = []
    with pytest.raises(
        ValueError,
        match=r"nothing is left to train of 4 parameters: "
        r"4 frozen by freeze\('encoder'\); freeze\('alphabeta', 'head'\); unfreeze some",
    ):
        mg.TrainStep(net, made.append)  # pyright: ignore
    assert made == []


def test_each_reason_why_nothing_is_left_is_counted():
    net = Trap()
    mg.freeze(net, "encoder")
    net.head.weight.requires_grad = False
    with pytest.raises(
        ValueError,
        match=r"2 frozen by freeze\('encoder'\), 1 with requires_grad False, 1 outside trainable=",
    ):
        mg.TrainStep(net, momentum, trainable=["encoder", "head"])


def test_a_network_without_weights_says_so():
    with pytest.raises(ValueError, match=r"of 0 parameters: the network has none that can train"):
        mg.TrainStep(nn.ReLU(), momentum)


def test_an_optimizer_kept_from_the_first_stage_is_refused_in_the_second():
    net = Spare()
    kept: list[nn.Cell] = []

    def same(parameters: list[Parameter]) -> nn.Cell:
        kept.append(momentum(parameters))
        return kept[0]

    step = mg.TrainStep(net, same, unreached="allow").set_train()
    mg.freeze(net, "first")
    with pytest.raises(ValueError, match=r"\ngiven: 6: unused.*\nholds: 8: first\.weight"):
        step(*batches(1)[0])


def test_a_loss_function_may_be_a_cell_or_a_function():
    for_cell = mg.TrainStep(nn.Dense(4, 2), momentum, nn.MSELoss())
    for_function = mg.TrainStep(nn.Dense(4, 2), momentum, mean_square)
    assert for_cell.trainable == for_function.trainable == ["weight", "bias"]
