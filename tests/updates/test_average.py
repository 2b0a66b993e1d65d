"""A moving average of the weights, and its loan to the network."""

from __future__ import annotations

import copy

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg
from tests.nets.shared import Masked
from tests.nets.update_nets import START, NumpyRun, X, Y, linear, make_step, run_with_change, values

pytestmark = pytest.mark.usefixtures("mode")


def set_all(net: nn.Cell, number: float) -> None:
    """Give every parameter other values, integers too."""
    for parameter in net.get_parameters():
        ops.assign(parameter, ops.full_like(parameter, number))


def bits(found: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in found.items()}


def lent(average: mg.MovingAverage, net: nn.Cell) -> dict[str, np.ndarray]:
    with average.swap():
        return values(net)


def test_the_average_follows_the_weights_by_its_formula():
    net = linear()
    average = mg.MovingAverage(net, decay=0.9)
    expected = START.copy()
    for number in (1.0, -2.0, 4.0):
        set_all(net, number)
        average.update()
        expected = 0.9 * expected + 0.1 * number
    assert int(average.step.asnumpy()) == 3
    np.testing.assert_allclose(lent(average, net)["weight"], expected, rtol=1e-6)
    assert net.weight.asnumpy().tolist() == [[4.0, 4.0]]


def test_a_weight_that_does_not_move_keeps_its_bits():
    net = nn.Dense(16, 8, weight_init="normal", bias_init="normal")
    before = values(net)
    average = mg.MovingAverage(net, decay=0.7)
    for _ in range(5):
        average.update()
    assert bits(lent(average, net)) == bits(before)


STATISTICS = [pytest.param("copy", 3.0, id="copy"), pytest.param("average", 1.5, id="average")]


@pytest.mark.parametrize(("statistics", "mean"), STATISTICS)
def test_weights_are_averaged_integers_copied_and_statistics_by_choice(statistics, mean: float):
    net = Masked()
    set_all(net, 1.0)
    average = mg.MovingAverage(net, decay=0.75, statistics=statistics)
    set_all(net, 3.0)
    average.update()
    got = {name: float(value.ravel()[0]) for name, value in lent(average, net).items()}
    assert got == {
        **dict.fromkeys(got, 1.5),
        "norm.moving_mean": mean,
        "norm.moving_variance": mean,
        "count": 3.0,
    }
    assert set(values(net)) == set(average.names)


def test_patterns_choose_what_is_averaged():
    net = nn.SequentialCell(nn.Dense(1, 1, "ones"), nn.Dense(1, 1, "ones"))
    average = mg.MovingAverage(net, "*.weight", "!0", decay=0.5)
    assert average.names == ["1.weight"]
    set_all(net, 3.0)
    average.update()
    got = {name: float(value.ravel()[0]) for name, value in lent(average, net).items()}
    assert got == {"0.weight": 3.0, "0.bias": 3.0, "1.weight": 2.0, "1.bias": 3.0}


def test_an_average_of_half_precision_moves_by_small_steps():
    net = nn.Dense(1, 1, has_bias=False)
    net.weight = Parameter(Tensor(np.ones((1, 1)), ms.float16), name="weight")
    average = mg.MovingAverage(net, decay=0.999)
    set_all(net, 1.25)
    for _ in range(8):
        average.update()
    expected = 1.25 - 0.25 * 0.999**8
    assert lent(average, net)["weight"].tolist() == [[np.float16(expected)]]
    assert net.weight.dtype == ms.float16


def test_swap_gives_the_weights_back_bit_for_bit_by_an_exception_too():
    net = Masked()
    ops.assign(net.head.weight, Tensor(np.full((2, 4), -0.0, np.float32)))
    ops.assign(net.head.bias, Tensor(np.array([np.nan, np.inf], np.float32)))
    average = mg.MovingAverage(net, decay=0.5)
    ops.assign(net.fc.weight, net.fc.weight + 1)
    average.update()
    before = values(net)

    def fail() -> None:
        with average.swap():
            assert values(net)["fc.weight"].tobytes() != before["fc.weight"].tobytes()
            set_all(net, 9.0)
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        fail()
    assert bits(values(net)) == bits(before)
    with average.swap():
        pass
    assert bits(values(net)) == bits(before)


@pytest.mark.parametrize("style", ["cell", "functional", "jit"])
def test_the_optimizer_keeps_the_weight_through_a_swap(style: str):
    net = linear()
    average = mg.MovingAverage(net, decay=0.5)
    seen = []

    def change() -> None:
        average.update()
        seen.append(lent(average, net)["weight"])

    run_with_change(style, net, change)
    expected = NumpyRun()
    expected.step()
    expected.step()
    np.testing.assert_allclose(seen[0], 0.5 * START + 0.5 * expected.w, rtol=1e-5)
    expected.step()
    expected.step()
    np.testing.assert_allclose(net.weight.asnumpy(), expected.w, rtol=1e-5)


def test_a_network_computes_with_the_average_while_it_is_lent():
    net = linear()
    step = make_step("cell", net)
    average = mg.MovingAverage(net, decay=0.5)
    for _ in range(2):
        step(Tensor(X), Tensor(Y))
        average.update()
    with average.swap():
        weight = net.weight.asnumpy().copy()
        np.testing.assert_allclose(net(Tensor(X)).asnumpy(), X @ weight.T, rtol=1e-5, atol=1e-6)
    after = net.weight.asnumpy()
    assert np.abs(after - weight).max() > 1e-3
    np.testing.assert_allclose(net(Tensor(X)).asnumpy(), X @ after.T, rtol=1e-5, atol=1e-6)


def test_a_second_swap_and_an_update_are_refused_while_it_is_lent():
    net = linear()
    average = mg.MovingAverage(net)
    with average.swap():
        with pytest.raises(mg.ArgumentError, match="swapped in already"), average.swap():
            pass
        with pytest.raises(mg.ArgumentError, match="cannot be updated"):
            average.update()
    average.update()
    assert net.weight.asnumpy().tobytes() == START.tobytes()


def test_the_state_is_named_after_the_weights_and_can_be_saved():
    net = Masked()
    average = mg.MovingAverage(net, "fc", "count", decay=0.5)
    names = [
        "moving_average.fc.weight",
        "moving_average.fc.bias",
        "moving_average.count",
        "moving_average.step",
    ]
    assert sorted(p.name for p in average.get_parameters()) == sorted(names)
    assert not any(p.requires_grad for p in average.get_parameters())
    set_all(net, 2.0)
    average.update()
    ms.save_checkpoint(average, "average.ckpt")
    other = Masked()
    fresh = mg.MovingAverage(other, "fc", "count", decay=0.5)
    assert ms.load_param_into_net(fresh, ms.load_checkpoint("average.ckpt")) == ([], [])
    assert lent(fresh, other)["fc.weight"].tobytes() == lent(average, net)["fc.weight"].tobytes()
    average.name_state("updates.3")
    assert "updates.3.fc.weight" in {p.name for p in average.get_parameters()}
    assert list(values(net)) == list(values(Masked()))


def test_a_copied_network_has_nothing_to_do_with_the_average():
    net = linear()
    average = mg.MovingAverage(net, decay=0.0)
    other = copy.deepcopy(net)
    set_all(net, 2.0)
    average.update()
    with average.swap():
        assert other.weight.asnumpy().tobytes() == START.tobytes()
    set_all(other, 5.0)
    assert lent(average, net)["weight"].tolist() == [[2.0, 2.0]]


REFUSED = [
    pytest.param({"decay": 1.5}, "decay 1.5 is no share", id="decay"),
    pytest.param({"decay": float("nan")}, "decay nan is no share", id="nan"),
    pytest.param({"statistics": "drop"}, "statistics 'drop' is unknown", id="statistics"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_an_argument_that_cannot_be_used_is_refused(arguments: dict, message: str):
    with pytest.raises(mg.ArgumentError, match=message):
        mg.MovingAverage(linear(), **arguments)


def test_a_pattern_that_matches_nothing_is_refused():
    with pytest.raises(mg.NoMatchError, match="did you mean 'weight'"):
        mg.MovingAverage(linear(), "wieght")
