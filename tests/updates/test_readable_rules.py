"""Which functions can be rules: what a compiled graph can read, and what is refused before it."""

from __future__ import annotations

import functools
import operator

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg
from tests.nets.update_nets import Method, double

pytestmark = pytest.mark.usefixtures("mode")

WEIGHT = np.array([[3.0, -4.0], [0.0, 0.0], [0.25, 0.5]], np.float32)
HOW = "write it as a def in a file, or as a lambda alone on its line"


def net_with(weight: np.ndarray = WEIGHT, name: str = "weight") -> nn.Dense:
    net = nn.Dense(2, 3, has_bias=False)
    net.weight = Parameter(Tensor(weight), name=name)
    return net


def after(rule: mg.rules.Rule, weight: np.ndarray = WEIGHT) -> np.ndarray:
    net = net_with(weight)
    mg.update_weights(net, {"weight": rule})
    return net.weight.asnumpy()


def times(w: Tensor, factor: float = 2.0) -> Tensor:
    return w * factor


def closure(factor: float):
    def rule(w: Tensor) -> Tensor:
        return w * factor

    return rule


@ms.jit
def jitted(w: Tensor) -> Tensor:
    return w * 2.0


alone = lambda w: w * 2.0  # noqa: E731

READABLE = [
    pytest.param(times, id="def"),
    pytest.param(alone, id="lambda on its line"),
    pytest.param(closure(2.0), id="closure"),
    pytest.param(Method(2.0).scaled, id="method"),
    pytest.param(Method(2.0), id="object"),
    pytest.param(functools.partial(times, factor=2.0), id="partial"),
    pytest.param(functools.partial(operator.mul, 2.0), id="partial of a builtin"),
    pytest.param(functools.partial(ops.mul, 2.0), id="partial of an operator"),
    pytest.param(jitted, id="jit"),
    pytest.param(mg.no_grad(times), id="no_grad"),
]


@pytest.mark.parametrize("rule", READABLE)
def test_a_function_that_a_graph_can_read_is_a_rule(rule):
    assert after(rule).tobytes() == (2 * WEIGHT).tobytes()


NEGATING = [
    pytest.param(ops.neg, id="function of ops"),
    pytest.param(ops.Neg(), id="primitive"),
    pytest.param(operator.neg, id="builtin"),
]


@pytest.mark.parametrize("rule", NEGATING)
def test_an_operator_is_a_rule(rule):
    assert after(rule).tobytes() == (-WEIGHT).tobytes()


def test_a_cell_is_a_rule():
    assert after(nn.ReLU()).tobytes() == np.maximum(WEIGHT, 0).tobytes()


def decorated():
    def plus_one(fn):
        @functools.wraps(fn)
        def wrapper(w):
            return fn(w) + 1.0

        return wrapper

    return plus_one(times)


def returned():
    return lambda w: w * 2.0


SHARED = {"weight": lambda w: w * 2.0}
LINE = "is a lambda that shares its line"
UNREADABLE = [
    pytest.param(SHARED["weight"], LINE, 2 * WEIGHT, id="in a dict"),
    pytest.param(returned(), LINE, 2 * WEIGHT, id="returned"),
    pytest.param(functools.partial(returned()), LINE, 2 * WEIGHT, id="partial of one"),
    pytest.param(eval("lambda w: w * 2.0"), "has no source in a file", 2 * WEIGHT, id="eval"),
    pytest.param(decorated(), "has a decorator made with", 2 * WEIGHT + 1, id="wraps"),
]


@pytest.mark.parametrize(("rule", "reason", "expected"), UNREADABLE)
def test_a_function_that_a_graph_cannot_read_is_refused_before_compiling_and_runs_eagerly(
    rule, reason: str, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
):
    net = net_with()
    with monkeypatch.context() as patch:
        patch.setattr(nn.Cell, "compile_and_run", None)
        with pytest.raises(mg.ArgumentError, match=f"'weight' {reason}.*{HOW}.*compiled=False"):
            mg.update_weights(net, {"weight": rule})
        with pytest.raises(mg.ArgumentError, match=f"'weight' {reason}.*{HOW}: f = .*w$"):
            mg.WeightUpdates(net, {"weight": rule})
    assert net.weight.asnumpy().tobytes() == WEIGHT.tobytes()
    mg.update_weights(net, {"weight": rule}, compiled=False)
    assert net.weight.asnumpy().tobytes() == expected.tobytes()


COMPILED_CODE = [
    pytest.param(np.abs, "compiled code .ufunc.", id="numpy"),
    pytest.param(WEIGHT.dot, "compiled code .builtin_function_or_method.", id="bound method"),
]


@pytest.mark.parametrize(("rule", "reason"), COMPILED_CODE)
def test_code_in_c_is_refused_before_compiling(rule, reason: str):
    with pytest.raises(mg.ArgumentError, match=f"{reason}.*{HOW}"):
        mg.update_weights(net_with(), {"weight": rule})


def through_numpy(w: Tensor) -> Tensor:
    return Tensor(np.flip(w.asnumpy()).copy())


def test_a_function_that_does_not_compile_is_refused_by_the_trial_and_runs_eagerly():
    net = net_with()
    with pytest.raises(
        mg.ArgumentError,
        match="rule 'weight' cannot be compiled .*asnumpy.*HOW".replace("HOW", HOW),
    ):
        mg.update_weights(net, {"weight": through_numpy})
    assert net.weight.asnumpy().tobytes() == WEIGHT.tobytes()
    mg.update_weights(net, {"weight": through_numpy}, compiled=False)
    assert net.weight.asnumpy().tobytes() == np.flip(WEIGHT).tobytes()


def test_the_rule_that_does_not_compile_is_named_among_others():
    net = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2))
    with pytest.raises(mg.ArgumentError, match="rule '1' cannot be compiled"):
        mg.update_weights(net, {"0": double, "1": through_numpy})


def nothing(w: Tensor) -> None:
    pass


def number(w: Tensor) -> float:
    return 1.0


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("rule", [nothing, number])
def test_a_rule_that_returns_no_tensor_is_refused(rule, compiled: bool):
    with pytest.raises(TypeError, match="rule 'weight' returns no Tensor for 'weight'"):
        mg.update_weights(net_with(), {"weight": rule}, compiled=compiled)


def three_inputs(w, step, more):
    return w


def no_input():
    return 1


@pytest.mark.parametrize(("rule", "count"), [(three_inputs, 3), (no_input, 0)])
def test_a_rule_with_other_inputs_is_refused(rule, count: int):
    with pytest.raises(
        mg.ArgumentError, match=rf"takes {count} inputs; write fn\(w\) or fn\(w, step"
    ):
        mg.update_weights(net_with(), {"weight": rule})
