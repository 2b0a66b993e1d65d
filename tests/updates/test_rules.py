"""The ready-made rules, against NumPy."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg

pytestmark = pytest.mark.usefixtures("mode")

WEIGHT = np.array([[3.0, -4.0], [0.0, 0.0], [0.25, 0.5]], np.float32)


def net_with(weight: np.ndarray = WEIGHT, name: str = "weight") -> nn.Dense:
    net = nn.Dense(2, 3, has_bias=False)
    net.weight = Parameter(Tensor(weight), name=name)
    return net


def after(rule: mg.rules.Rule, weight: np.ndarray = WEIGHT) -> np.ndarray:
    net = net_with(weight)
    mg.update_weights(net, {"weight": rule})
    return net.weight.asnumpy()


def test_clip_keeps_every_element_in_the_interval():
    assert after(mg.rules.clip(-0.5, 0.3)).tobytes() == np.clip(WEIGHT, -0.5, 0.3).tobytes()


def test_non_negative_sets_negative_elements_to_zero():
    assert after(mg.rules.non_negative()).tobytes() == np.maximum(WEIGHT, 0).tobytes()


def test_multiply_multiplies_and_two_in_one_call_keep_their_factors():
    net = nn.SequentialCell(nn.Dense(1, 1, "ones"), nn.Dense(1, 1, "ones"))
    mg.update_weights(net, {"0": mg.rules.multiply(3.0), "1": mg.rules.multiply(-0.5)})
    assert [float(layer.weight.asnumpy()[0, 0]) for layer in net] == [3.0, -0.5]


AXES = [
    pytest.param(None, (1,), id="per output"),
    pytest.param(0, (0,), id="per input"),
    pytest.param((0, 1), (0, 1), id="whole"),
]


@pytest.mark.parametrize(("axis", "axes"), AXES)
def test_max_norm_shrinks_long_vectors_and_keeps_the_bits_of_short_ones(axis, axes):
    norm = np.sqrt((WEIGHT**2).sum(axes, keepdims=True))
    expected = WEIGHT * np.minimum(1, 2.0 / np.where(norm > 0, norm, 1))
    got = after(mg.rules.max_norm(2.0, axis))
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    short = np.broadcast_to(norm <= 2.0, WEIGHT.shape)
    assert got[short].tobytes() == WEIGHT[short].tobytes()


@pytest.mark.parametrize(("axis", "axes"), AXES)
def test_unit_norm_gives_length_one_and_leaves_zeros(axis, axes):
    norm = np.sqrt((WEIGHT**2).sum(axes, keepdims=True))
    expected = WEIGHT / np.where(norm > 0, norm, 1)
    np.testing.assert_allclose(after(mg.rules.unit_norm(axis)), expected, rtol=1e-6)


def test_a_norm_of_half_precision_does_not_overflow():
    weight = np.full((3, 2), 300.0, np.float16)
    np.testing.assert_allclose(after(mg.rules.unit_norm(), weight), 0.70710678, rtol=1e-3)


def test_the_norm_of_a_bias_is_taken_element_by_element():
    net = nn.Dense(2, 3, "ones", Tensor(np.array([-5.0, 0.5, 0.0], np.float32)))
    mg.update_weights(net, {"bias": mg.rules.max_norm(1.0)})
    assert net.bias.asnumpy().tolist() == [-1.0, 0.5, 0.0]


def numpy_noise(name: str, seed: int, step: int, count: int) -> np.ndarray:
    """The noise of `add_noise`, written with unsigned integers."""

    def mix(x):
        x = np.asarray(x, np.uint32)
        with np.errstate(over="ignore"):
            x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
            x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
        return x ^ (x >> np.uint32(16))

    key = mix(mix(step) ^ np.uint32(crc32(f"{seed}:{name}".encode())))
    place = np.arange(count, dtype=np.uint32)
    first, second = (mix(mix(2 * place + k) ^ key) >> np.uint32(8) for k in (0, 1))
    radius = np.sqrt(-2 * np.log((first + 1.0) / 2**24))
    return radius * np.cos(2 * np.pi * second / 2**24)


def test_noise_is_a_function_of_seed_name_step_and_place():
    net = net_with(np.zeros((3, 2), np.float32))
    updates = mg.WeightUpdates(net, {"weight": mg.rules.add_noise(0.5, seed=7)})
    updates()
    first = net.weight.asnumpy().copy()
    updates()
    expected = [0.5 * numpy_noise("weight", 7, step, 6).reshape(3, 2) for step in (0, 1)]
    np.testing.assert_allclose(first, expected[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(net.weight.asnumpy() - first, expected[1], rtol=1e-4, atol=1e-6)


def test_noise_is_standard_normal_and_differs_between_weights():
    net = nn.SequentialCell(nn.Dense(200, 200, "zeros"), nn.Dense(200, 200, "zeros"))
    mg.update_weights(net, {"*.weight": mg.rules.add_noise(1.0)})
    a, b = (layer.weight.asnumpy().ravel() for layer in net)
    # 40,000 draws: five standard errors
    assert abs(a.mean()) < 5 / 200
    assert abs(a.std() - 1) < 5 / 200 / np.sqrt(2)
    assert abs(np.mean(a**4) - 3) < 5 * np.sqrt(96) / 200
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / 200
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 5 / 200


def two_networks() -> nn.CellList:
    return nn.CellList([nn.Dense(2, 3, Tensor(WEIGHT)), nn.Dense(2, 3, "ones")])


def test_a_soft_update_moves_toward_the_other_network_and_reads_it_at_each_call():
    online, target = two_networks()
    updates = mg.WeightUpdates(target, {"weight": mg.rules.soft_update(online, tau=0.25)})
    updates()
    expected = 0.75 * np.ones_like(WEIGHT) + 0.25 * WEIGHT
    np.testing.assert_allclose(target.weight.asnumpy(), expected, rtol=1e-6)
    ops.assign(online.weight, Tensor(2 * WEIGHT))
    updates()
    np.testing.assert_allclose(target.weight.asnumpy(), 0.75 * expected + 0.5 * WEIGHT, rtol=1e-6)
    assert online.weight.asnumpy().tobytes() == (2 * WEIGHT).tobytes()
    assert [p.name for p in updates.get_parameters()] == ["updates.step"]


def test_a_soft_update_with_tau_1_copies():
    online, target = two_networks()
    mg.update_weights(target, {"*": mg.rules.soft_update(online, tau=1.0)})
    assert target.weight.asnumpy().tobytes() == WEIGHT.tobytes()
    assert target.bias.asnumpy().tobytes() == online.bias.asnumpy().tobytes()


def test_a_soft_update_toward_a_network_with_equal_names_is_refused():
    with pytest.raises(mg.ConflictError, match=r"parameter named 'weight'.*update_parameters_name"):
        mg.update_weights(net_with(), {"*": mg.rules.soft_update(net_with(), tau=0.5)})


def test_a_soft_update_toward_a_network_of_another_build_is_refused():
    net = nn.SequentialCell(nn.Dense(2, 3))
    other = nn.CellList([nn.SequentialCell(nn.Dense(2, 4))])[0]
    with pytest.raises(mg.ShapeError, match=r"path '0\.weight' differs.*\n.*\(3, 2\)\n.*\(4, 2\)"):
        mg.update_weights(net, {"*.weight": mg.rules.soft_update(other, tau=0.5)})
    with pytest.raises(mg.NoMatchError, match=r"path '0\.weight' is none of 2 .*\['weight'\]"):
        mg.update_weights(net, {"*.weight": mg.rules.soft_update(other[0], tau=0.5)})


def test_what_was_zero_stays_zero():
    net = net_with()
    updates = mg.WeightUpdates(net, {"weight": mg.rules.keep_zeros()})
    assert [p.name for p in updates.get_parameters()] == ["updates.step", "updates.0.weight"]
    ops.assign(net.weight, Tensor(WEIGHT + 1))
    updates()
    assert net.weight.asnumpy().tobytes() == np.where(WEIGHT != 0, WEIGHT + 1, 0).tobytes()


REFUSED = [
    pytest.param(lambda: mg.rules.multiply(float("nan")), "factor nan is not finite", id="factor"),
    pytest.param(lambda: mg.rules.clip(1.0, -1.0), "low 1.0 is not below high -1.0", id="clip"),
    pytest.param(lambda: mg.rules.max_norm(0.0), "limit 0.0 is not above 0", id="limit"),
    pytest.param(lambda: mg.rules.add_noise(-1.0), "stddev -1.0 is no deviation", id="stddev"),
    pytest.param(lambda: mg.rules.soft_update(nn.ReLU(), 1.5), "tau 1.5 is no share", id="tau"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_a_number_that_cannot_be_used_is_refused(make, message: str):
    with pytest.raises(mg.ArgumentError, match=message):
        make()
