"""Weights changed now, by the user's own functions: exact values, all or nothing."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg
from msgrad.updates import _update
from tests.nets.shared import Masked, Tied
from tests.nets.update_nets import (
    START,
    NumpyRun,
    assert_equal,
    by_step,
    double,
    grow,
    less,
    linear,
    run_with_change,
    shrink,
    three,
    to_nan,
    turned,
    values,
    with_default,
)

pytestmark = pytest.mark.usefixtures("mode")

STYLES = ["cell", "functional", "jit"]
WAYS = [pytest.param(True, id="compiled"), pytest.param(False, id="eager")]


@pytest.mark.parametrize("compiled", WAYS)
def test_each_layer_is_changed_by_its_own_function(compiled: bool):
    net = three()
    before = values(net)
    names = mg.update_weights(net, {"0": grow, "1": shrink, "2.weight": less}, compiled=compiled)
    assert names == ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight"]
    f = np.float32
    expected = {
        **{n: v + f(1e-3) * v for n, v in before.items() if n[0] == "0"},
        **{n: f(1e-2) * v for n, v in before.items() if n[0] == "1"},
        "2.weight": before["2.weight"] - f(1e-1) * before["2.weight"],
        "2.bias": before["2.bias"],
    }
    got = values(net)
    assert_equal({"2.bias": got.pop("2.bias")}, {"2.bias": expected.pop("2.bias")})
    for name, value in expected.items():
        # one rounding more or less: a compiler may fuse the product and the sum
        np.testing.assert_allclose(got[name], value, rtol=2e-7, err_msg=name)


def test_the_last_matching_rule_wins_for_each_weight():
    net = three()
    before = values(net)
    mg.update_weights(net, {"0.weight": shrink, "*.weight": double, "2": less})
    got = values(net)
    assert_equal(
        {n: got[n] for n in ("0.weight", "0.bias", "1.weight")},
        {
            "0.weight": 2 * before["0.weight"],
            "0.bias": before["0.bias"],
            "1.weight": 2 * before["1.weight"],
        },
    )
    np.testing.assert_allclose(got["2.weight"], 0.9 * before["2.weight"], rtol=2e-7)


def test_only_what_the_model_made_trainable_is_changed():
    net = Masked()
    before = values(net)
    names = mg.update_weights(net, {"*": double})
    assert names == ["fc.weight", "fc.bias", "norm.gamma", "norm.beta", "head.weight", "head.bias"]
    assert_equal(values(net), {n: 2 * v if n in names else v for n, v in before.items()})


def test_a_rule_with_nothing_trainable_is_refused():
    net = Masked()
    with pytest.raises(
        mg.ArgumentError, match=r"rule 'mask' matches 1 parameters, none of them trainable"
    ):
        mg.update_weights(net, {"mask": double})


def test_a_tied_weight_is_changed_once():
    net = Tied()
    before = net.embedding.table.asnumpy().copy()
    assert mg.update_weights(net, {"*.weight": double, "embedding": double})[0] == (
        "embedding.table"
    )
    assert net.output.weight.asnumpy().tobytes() == (2 * before).tobytes()


def test_numbers_that_a_function_reads_are_read_at_each_call(monkeypatch: pytest.MonkeyPatch):
    net = linear()
    mg.update_weights(net, {"*": scaled})
    monkeypatch.setattr("test_update.FACTOR", 4.0)
    mg.update_weights(net, {"*": scaled})
    assert net.weight.asnumpy().tobytes() == (12 * START).tobytes()


FACTOR = 3.0


def scaled(w: Tensor) -> Tensor:
    return w * FACTOR


@pytest.mark.parametrize("compiled", WAYS)
@pytest.mark.parametrize("style", STYLES)
def test_the_next_step_uses_the_change_and_the_optimizer_keeps_the_weight(
    style: str, compiled: bool
):
    net = linear()
    run_with_change(style, net, lambda: mg.update_weights(net, {"*": double}, compiled=compiled))
    expected = NumpyRun()
    expected.step()
    expected.step()
    expected.w = 2 * expected.w
    expected.step()
    expected.step()
    np.testing.assert_allclose(net.weight.asnumpy(), expected.w, rtol=1e-5)
    unchanged = NumpyRun()
    for _ in range(4):
        unchanged.step()
    assert np.abs(unchanged.w - expected.w).max() > 0.01


@pytest.mark.parametrize("compiled", WAYS)
def test_a_function_may_return_a_view_of_its_weight(compiled: bool):
    net = nn.Dense(3, 3, Tensor(np.arange(9).reshape(3, 3), ms.float32))
    mg.update_weights(net, {"weight": turned}, compiled=compiled)
    assert net.weight.asnumpy().tolist() == np.arange(9).reshape(3, 3).T.tolist()


@pytest.mark.parametrize("compiled", WAYS)
def test_the_step_number_is_0_and_defaults_stay(compiled: bool):
    net = three()
    before = values(net)
    mg.update_weights(net, {"0.weight": by_step, "1.weight": with_default}, compiled=compiled)
    assert_equal(values(net), {**before, "1.weight": 3 * before["1.weight"]})


DTYPES = [ms.float16, ms.float32, ms.float64]  # bfloat16 has no arithmetic on the CPU


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_of_every_floating_dtype_are_checked_and_changed(dtype):
    net = nn.Dense(2, 1, has_bias=False)
    net.weight = Parameter(Tensor(np.array([[3.0e4, 3.0e4]]), dtype), name="weight")
    mg.update_weights(net, {"weight": less})
    got = ops.cast(net.weight, ms.float32).asnumpy()
    assert net.weight.dtype == dtype
    np.testing.assert_allclose(got, 2.7e4, rtol=1e-2)
    with pytest.raises(mg.ArgumentError, match="nan or infinity"):
        mg.update_weights(net, {"weight": to_nan})


def test_many_weights_are_changed_a_graph_at_a_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_update, "_AT_ONCE", 2)
    net = three()
    before = values(net)
    names = mg.update_weights(net, {"0": shrink, "*.bias": double, "2.weight": less})
    assert names == ["0.weight", "0.bias", "1.bias", "2.weight", "2.bias"]
    got = values(net)
    assert_equal(
        {n: got[n] for n in ("0.bias", "1.weight", "1.bias", "2.bias")},
        {
            "0.bias": 2 * before["0.bias"],
            "1.weight": before["1.weight"],
            "1.bias": 2 * before["1.bias"],
            "2.bias": 2 * before["2.bias"],
        },
    )
    np.testing.assert_allclose(got["0.weight"], 0.01 * before["0.weight"], rtol=2e-7)
    np.testing.assert_allclose(got["2.weight"], 0.9 * before["2.weight"], rtol=2e-7)
