"""What `update_weights` refuses, and that nothing has changed then: all or nothing."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import msgrad as mg
from msgrad.updates import _update
from tests.nets.update_nets import (
    START,
    Failing,
    Halving,
    assert_equal,
    assign_half,
    double,
    first_row,
    jitter,
    linear,
    log_of_noise,
    set_first,
    three,
    to_half,
    to_infinity,
    to_nan,
    values,
)

pytestmark = pytest.mark.usefixtures("mode")

WAYS = [pytest.param(True, id="compiled"), pytest.param(False, id="eager")]


WRONG = [
    pytest.param(first_row, mg.ShapeError, r"before: float32 \(3, 2\)\nafter: float32 \(1, 2\)"),
    pytest.param(to_half, mg.ShapeError, r"before: float32 \(3, 2\)\nafter: float16 \(3, 2\)"),
    pytest.param(to_nan, mg.ArgumentError, r"nan or infinity for 1 of 4 weights: 1\.weight;"),
    pytest.param(to_infinity, mg.ArgumentError, r"nan or infinity for 1 of 4 weights: 1\.weight;"),
    pytest.param(log_of_noise, mg.ArgumentError, r"nan or infinity for 1 of 4 weights: 1\.weight"),
]


@pytest.mark.parametrize("compiled", WAYS)
@pytest.mark.parametrize(
    ("rule", "error", "message"), WRONG, ids=lambda v: getattr(v, "__name__", "")
)
def test_one_wrong_value_leaves_every_weight_as_it_was(rule, error, message: str, compiled: bool):
    net = three()
    before = values(net)
    with pytest.raises(error, match=message):
        mg.update_weights(
            net, {"0": double, "1.weight": rule, "2.weight": double}, compiled=compiled
        )
    assert_equal(values(net), before)


@pytest.mark.parametrize("compiled", WAYS)
def test_nan_and_infinity_are_written_when_allowed(compiled: bool):
    net = three()
    mg.update_weights(net, {"1.weight": to_nan}, compiled=compiled, allow_nonfinite=True)
    assert np.isnan(net[1].weight.asnumpy()).all()
    assert np.isfinite(net[1].bias.asnumpy()).all()


def test_finite_values_whose_sum_is_infinite_are_written():
    net = nn.Dense(2, 1, Tensor(np.full((1, 2), 1.5e38, np.float32)))
    mg.update_weights(net, {"weight": double})
    assert net.weight.asnumpy().tobytes() == np.full((1, 2), 3e38, np.float32).tobytes()


def test_the_value_that_is_written_is_the_one_that_was_checked():
    net = linear()
    rule = Halving()
    mg.update_weights(net, {"weight": rule})
    assert net.weight.asnumpy().tobytes() == (0.5 * START).tobytes()
    assert int(rule.calls.asnumpy()) == 1


@pytest.mark.parametrize("compiled", WAYS)
def test_a_refused_rule_keeps_its_state(compiled: bool):
    net = linear()
    rule = Failing()
    with pytest.raises(mg.ArgumentError, match="nan or infinity"):
        mg.update_weights(net, {"weight": rule}, compiled=compiled)
    assert int(rule.calls.asnumpy()) == 0
    assert net.weight.asnumpy().tobytes() == START.tobytes()


def test_a_function_that_draws_is_not_asked_again_for_the_write(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_update, "WriteGraph", None)
    net = linear()
    mg.update_weights(net, {"weight": jitter})
    assert np.isfinite(net.weight.asnumpy()).all()
    assert (net.weight.asnumpy() != START).all()


@pytest.mark.parametrize("rule", [set_first, assign_half], ids=lambda rule: rule.__name__)
def test_a_function_that_works_in_place_is_refused_in_a_graph_and_runs_eagerly(rule):
    net = linear()
    with pytest.raises(mg.ArgumentError, match="rule 'weight' changes its input in place; return"):
        mg.update_weights(net, {"weight": rule})
    with pytest.raises(mg.ArgumentError, match="changes its input in place"):
        mg.WeightUpdates(net, {"weight": rule})
    assert net.weight.asnumpy().tobytes() == START.tobytes()
    mg.update_weights(net, {"weight": set_first}, compiled=False)
    assert net.weight.asnumpy().tolist() == [[7.0, -0.25]]
    layers = three()
    before = values(layers)
    with pytest.raises(mg.ArgumentError, match="nan or infinity"):
        mg.update_weights(layers, {"0.weight": set_first, "1": to_nan}, compiled=False)
    assert_equal(values(layers), before)


def test_a_frozen_weight_is_refused_and_changed_by_force_only():
    net = three()
    mg.freeze(net, "1")
    before = values(net)
    with pytest.raises(
        mg.FrozenWeightError,
        match=r"aims at 2 frozen of 3 weights: 1\.weight, 1\.bias; .*force=True",
    ):
        mg.update_weights(net, {"1": double, "0.weight": double})
    assert_equal(values(net), before)
    mg.update_weights(net, {"1": double, "0.weight": double}, force=True)
    changed = ("0.weight", "1.weight", "1.bias")
    assert_equal(values(net), {n: 2 * v if n in changed else v for n, v in before.items()})
    assert mg.is_frozen(net, "1")


def test_a_weight_switched_off_by_hand_is_frozen_too():
    net = three()
    assert not mg.is_frozen(net)
    net[2].weight.requires_grad = False
    with pytest.raises(mg.FrozenWeightError, match=r"1 frozen of 1 weights: 2\.weight"):
        mg.update_weights(net, {"2.weight": double})


@pytest.mark.parametrize(
    ("rules", "error", "message"),
    [
        pytest.param({}, mg.ArgumentTypeError, "hold no rule; give a dict", id="empty"),
        pytest.param([double], mg.ArgumentTypeError, "hold no rule; give a dict", id="list"),
        pytest.param({"1": 0.5}, mg.ArgumentTypeError, "rule '1' is 0.5, no function", id="number"),
        pytest.param({"1": nn.ReLU}, mg.ArgumentTypeError, "no function of a weight", id="class"),
        pytest.param({"3": double}, mg.NoMatchError, "pattern '3' matched none", id="no match"),
    ],
)
def test_rules_that_cannot_be_used_are_refused(rules, error, message: str):
    with pytest.raises(error, match=message):
        mg.update_weights(three(), rules)


@pytest.mark.parametrize("compiled", WAYS)
def test_the_mode_that_was_set_is_set_afterwards_by_an_error_too(mode: str, compiled: bool):
    expected = ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE
    net = linear()
    mg.update_weights(net, {"weight": double}, compiled=compiled)
    assert ms.get_context("mode") == expected
    with pytest.raises(mg.ShapeError, match="changes shape or dtype"):
        mg.update_weights(net, {"weight": to_half}, compiled=compiled)
    assert ms.get_context("mode") == expected
    assert net.weight.asnumpy().tobytes() == (2 * START).tobytes()


MASK = Tensor(np.eye(6, dtype=np.float32))


def masked(w: Tensor) -> Tensor:
    return w * MASK


def loud(w: Tensor) -> Tensor:
    return ops.matmul(w, MASK[:5])


@pytest.mark.parametrize("rule", [mg.rules.keep_zeros(), masked], ids=["keep_zeros", "masked"])
def test_a_rule_that_needs_the_shape_of_its_weight_prints_no_errors(
    rule, capfd: pytest.CaptureFixture[str]
):
    net = nn.Dense(6, 6)
    assert mg.WeightUpdates(net, {"weight": rule}).names == ["weight"]
    assert "ERROR" not in "".join(capfd.readouterr())


def test_a_rule_that_is_refused_tells_it_by_the_error_alone(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(mg.errors.ArgumentError, match="rule 'weight' cannot be compiled"):
        mg.WeightUpdates(nn.Dense(6, 6), {"weight": loud})
    assert "ERROR" not in "".join(capfd.readouterr())
