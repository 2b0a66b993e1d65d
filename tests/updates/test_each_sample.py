"""One step per example of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import msgrad as mg
from tests.nets.update_nets import linear

pytestmark = pytest.mark.usefixtures("mode")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 3)).astype(np.float32)
Y = RNG.standard_normal((7, 1)).astype(np.float32)


def net_of() -> nn.SequentialCell:
    rng = np.random.default_rng(1)
    first = Tensor(rng.standard_normal((4, 3)).astype(np.float32))
    second = Tensor(rng.standard_normal((1, 4)).astype(np.float32))
    return nn.SequentialCell(
        nn.Dense(3, 4, first, "ones"), nn.Tanh(), nn.Dense(4, 1, second, "ones")
    )


def shrink(w: Tensor) -> Tensor:
    return 0.99 * w


def train_cell(net: nn.Cell) -> nn.Cell:
    optimizer = nn.Adam(net.trainable_params(), 0.05)
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()


def train_step(net: nn.Cell) -> nn.Cell:
    updates = mg.WeightUpdates(net, {"0": shrink, "2.weight": shrink})
    return mg.TrainStep(net, lambda p: nn.Adam(p, 0.05), nn.MSELoss(), updates=updates).set_train()


def functional(net: nn.Cell) -> Callable:
    optimizer = nn.Adam(net.trainable_params(), 0.05)

    def forward(x, y):
        return ops.mse_loss(net(x), y)

    gradient = ops.value_and_grad(forward, None, optimizer.parameters)

    def step(x, y):
        loss, grads = gradient(x, y)
        optimizer(grads)
        return loss

    return step


STEPS = [
    pytest.param(train_cell, id="train cell"),
    pytest.param(train_step, id="TrainStep with updates"),
    pytest.param(functional, id="function"),
]


def bits(net: nn.Cell) -> list[bytes]:
    return [p.asnumpy().tobytes() for p in net.get_parameters()]


@pytest.mark.parametrize("make", STEPS)
def test_it_equals_a_loop_by_hand_bit_for_bit(make: Callable[[nn.Cell], Any]):
    net, by_hand = net_of(), net_of()
    start = bits(net)
    losses = mg.each_sample(make(net), Tensor(X), Tensor(Y))
    step = make(by_hand)
    expected = [
        float(step(Tensor(X[i : i + 1]), Tensor(Y[i : i + 1])).asnumpy()) for i in range(len(X))
    ]
    assert losses.shape == (7,)
    assert losses.asnumpy().tolist() == expected
    assert bits(net) == bits(by_hand)
    assert all(one != other for one, other in zip(start, bits(net), strict=True))


def test_the_update_stands_between_two_examples():
    net = linear()

    def rule(w: Tensor) -> Tensor:
        return 2.0 * w

    step = mg.TrainStep(
        net, lambda p: nn.SGD(p, 0.1), nn.MSELoss(), updates=mg.WeightUpdates(net, {"*": rule})
    )
    x = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32)
    y = np.array([[1.0], [0.0]], np.float32)
    losses = mg.each_sample(step, Tensor(x), Tensor(y))
    w = np.array([0.5, -0.25])
    expected = []
    for one, target in zip(x, y[:, 0], strict=True):
        error = one @ w - target
        expected.append(error**2)
        w = 2 * (w - 0.1 * 2 * error * one)
    np.testing.assert_allclose(losses.asnumpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(net.weight.asnumpy()[0], w, rtol=1e-5)


def test_all_batch_sizes_share_one_compiled_step(mode: str):
    net = net_of()
    step = train_step(net)
    for size in (7, 1, 4):
        assert mg.each_sample(step, Tensor(X[:size]), Tensor(Y[:size])).shape == (size,)
    assert step.compilations == (1 if mode == "graph" else 0)
    cell = train_cell(net_of())
    for size in (7, 1, 4):
        mg.each_sample(cell, Tensor(X[:size]), Tensor(Y[:size]))
    assert len(cell.compile_cache) == (1 if mode == "graph" else 0)


def test_inputs_may_be_nested_and_reach_the_step_one_by_one():
    seen = []

    def step(pair, index):
        first, [second] = pair
        assert isinstance(pair, tuple)
        assert (first.shape, second.shape, index.shape) == ((1, 3), (1, 1), (1,))
        seen.append(int(index.asnumpy()[0]))
        return first.sum() + second.sum()

    losses = mg.each_sample(step, (Tensor(X), [Tensor(Y)]), Tensor(np.arange(7)))
    np.testing.assert_allclose(losses.asnumpy(), X.sum(1) + Y[:, 0], rtol=1e-5, atol=1e-6)
    assert seen == list(range(7))


def test_the_loss_may_come_first_in_a_tuple_and_have_one_element():
    losses = mg.each_sample(lambda x: (x.reshape(1, 1), "overflow"), Tensor([1.0, 2.0]))
    assert losses.asnumpy().tolist() == [1.0, 2.0]


REFUSED = [
    pytest.param((), mg.ArgumentError, r"inputs \(\) are empty", id="none"),
    pytest.param(
        (Tensor(X), Tensor(Y[:6])),
        mg.ShapeError,
        r"different batch sizes.*\ninputs\[0\]: 7\ninputs\[1\]: 6",
        id="sizes",
    ),
    pytest.param(
        ((Tensor(X), Tensor(Y[:6])),),
        mg.ShapeError,
        r"different batch sizes.*\ninputs\[0\]\[0\]: 7\ninputs\[0\]\[1\]: 6",
        id="nested",
    ),
    pytest.param((Tensor(1.0),), mg.ShapeError, r"inputs\[0\] .* is a scalar", id="scalar"),
    pytest.param((Tensor(X), 3), mg.ArgumentTypeError, r"inputs\[1\] 3 is a int", id="number"),
    pytest.param((X,), mg.ArgumentTypeError, r"is a ndarray; give a Tensor", id="numpy"),
]


@pytest.mark.parametrize(("inputs", "error", "message"), REFUSED)
def test_inputs_that_are_no_batch_are_refused_before_any_step(inputs, error, message: str):
    def step(*given):
        pytest.fail("a step was taken")

    with pytest.raises(error, match=message):
        mg.each_sample(step, *inputs)


NO_LOSS = [
    pytest.param(lambda x: None, mg.ArgumentTypeError, "step returned None, no loss", id="none"),
    pytest.param(lambda x: x, mg.ShapeError, r"loss of shape \(1, 3\); return one", id="vector"),
]


@pytest.mark.parametrize(("step", "error", "message"), NO_LOSS)
def test_a_step_without_a_loss_is_refused(step, error, message: str):
    with pytest.raises(error, match=message):
        mg.each_sample(step, Tensor(X))
