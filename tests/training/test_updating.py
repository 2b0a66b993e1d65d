"""Weight updates inside a TrainStep, against a loop written in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg

pytestmark = pytest.mark.usefixtures("mode")

RATE, MOMENTUM, DECAY = 0.1, 0.9, 0.01
rng = np.random.default_rng(3)
X = rng.standard_normal((5, 3)).astype(np.float32)
Y = rng.standard_normal((5, 2)).astype(np.float32)
START = {
    "a.weight": rng.standard_normal((4, 3)).astype(np.float32),
    "b.weight": rng.standard_normal((4, 4)).astype(np.float32),
    "c.weight": rng.standard_normal((2, 4)).astype(np.float32),
}


class Three(nn.Cell):
    """Three layers without bias, a ReLU between: each gradient needs the weights behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(3, 4, Tensor(START["a.weight"]), has_bias=False)
        self.b = nn.Dense(4, 4, Tensor(START["b.weight"]), has_bias=False)
        self.c = nn.Dense(4, 2, Tensor(START["c.weight"]), has_bias=False)

    def construct(self, x: Tensor) -> Tensor:
        return self.c(ops.relu(self.b(ops.relu(self.a(x)))))


def grow(w: Tensor) -> Tensor:
    return w + 1e-3 * w


def shrink(w: Tensor) -> Tensor:
    return 1e-2 * w


def less(w: Tensor) -> Tensor:
    return w - 1e-1 * w


RULES = {"a": grow, "b": shrink, "c": less}


def changed(w: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n: np.asarray(RULES[n[0]](v), np.float32) for n, v in w.items()}


def gradient(w: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    """Return the mean squared error and its gradient, by hand."""
    h1 = np.maximum(X @ w["a.weight"].T, 0)
    h2 = np.maximum(h1 @ w["b.weight"].T, 0)
    error = h2 @ w["c.weight"].T - Y
    dout = 2 * error / error.size
    d2 = (dout @ w["c.weight"]) * (h2 > 0)
    d1 = (d2 @ w["b.weight"]) * (h1 > 0)
    return float(np.mean(error**2)), {
        "a.weight": d1.T @ X,
        "b.weight": d2.T @ h1,
        "c.weight": dout.T @ h2,
    }


def numpy_run(when: str, steps: int) -> tuple[list[float], dict[str, np.ndarray]]:
    w = dict(START)
    velocity = {n: np.zeros_like(v) for n, v in w.items()}
    losses = []
    for _ in range(steps):
        if when == "before_forward":
            w = changed(w)
        loss, grads = gradient(w)
        if when == "after_gradient":
            w = changed(w)
        for n in w:
            velocity[n] = MOMENTUM * velocity[n] + grads[n] + DECAY * w[n]
            w[n] = w[n] - RATE * velocity[n]
        if when == "after_step":
            w = changed(w)
        losses.append(loss)
    return losses, w


def momentum(parameters: list[Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, RATE, MOMENTUM, weight_decay=DECAY)


def values(net: nn.Cell) -> dict[str, np.ndarray]:
    return {p.name: p.asnumpy().copy() for p in net.get_parameters()}


def assert_close(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-5, atol=2e-7, err_msg=name)


@pytest.mark.parametrize("when", ["before_forward", "after_gradient", "after_step"])
def test_each_point_of_a_step_gives_the_values_of_a_numpy_loop(when: str):
    net = Three()
    updates = mg.WeightUpdates(net, RULES, when=when)
    step = mg.TrainStep(net, momentum, nn.MSELoss(), updates=updates, unreached="allow")
    losses = [float(step(Tensor(X), Tensor(Y)).asnumpy()) for _ in range(4)]
    expected, weights = numpy_run(when, 4)
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    assert_close(values(net), weights)
    assert int(updates.step.asnumpy()) == 4


def test_the_three_points_differ():
    ends = [
        numpy_run(when, 4)[1]["b.weight"]
        for when in ("before_forward", "after_gradient", "after_step")
    ]
    assert np.abs(ends[0] - ends[1]).max() > 1e-3
    assert np.abs(ends[1] - ends[2]).max() > 1e-3


def test_a_dict_is_applied_after_the_step():
    net = Three()
    step = mg.TrainStep(net, momentum, nn.MSELoss(), updates=RULES, unreached="allow")
    step(Tensor(X), Tensor(Y))
    assert_close(values(net), numpy_run("after_step", 1)[1])


def test_several_updates_run_in_the_order_of_the_list():
    net = Three()
    first = mg.WeightUpdates(net, {"c": mg.rules.multiply(2.0)})
    second = mg.WeightUpdates(net, {"c": mg.rules.clip(-0.5, 0.5)})
    step = mg.TrainStep(net, momentum, nn.MSELoss(), updates=[first, second], unreached="allow")
    step(Tensor(X), Tensor(Y))
    _, plain = numpy_run("never", 1)
    assert_close(values(net), {**plain, "c.weight": np.clip(2 * plain["c.weight"], -0.5, 0.5)})


class Accumulate(nn.Cell):
    """A train cell of a user's: the optimizer runs at every second call."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network.set_grad()
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.sums = self.weights.clone(prefix="sum", init="zeros")
        self.calls = Parameter(Tensor(0, ms.int32), name="calls")
        self.grad = ops.GradOperation(get_by_list=True)
        self.map = ops.HyperMap()

    def construct(self, *inputs: Tensor) -> Tensor:
        loss = self.network(*inputs)
        grads = self.grad(self.network, self.weights)(*inputs)
        loss = ops.depend(loss, self.map(ops.assign_add, self.sums, grads))
        loss = ops.depend(loss, ops.assign_add(self.calls, Tensor(1, ms.int32)))
        if self.calls % 2 == 0:
            mean = self.map(ops.mul, self.sums, (0.5, 0.5, 0.5))
            loss = ops.depend(loss, self.optimizer(mean))
            loss = ops.depend(
                loss, self.map(ops.assign, self.sums, self.map(ops.zeros_like, self.sums))
            )
        return loss


@pytest.mark.parametrize("when", ["before_forward", "after_gradient", "after_step"])
def test_under_accumulation_an_update_runs_once_for_each_optimizer_update(when: str):
    net = Three()
    updates = mg.WeightUpdates(net, RULES, when=when)
    step = mg.TrainStep(
        net, momentum, nn.MSELoss(), updates=updates, train_cell=Accumulate, unreached="allow"
    )
    for _ in range(4):
        step(Tensor(X), Tensor(Y))
    assert int(updates.step.asnumpy()) == 2
    assert_close(values(net), numpy_run(when, 2)[1])


def test_a_moving_average_follows_the_step_and_is_saved_with_it():
    net = Three()
    average = mg.MovingAverage(net, decay=0.9)
    step = mg.TrainStep(net, momentum, nn.MSELoss(), updates=average, unreached="allow")
    expected = dict(START)
    for number in range(1, 4):
        step(Tensor(X), Tensor(Y))
        weights = numpy_run("never", number)[1]
        expected = {n: v + 0.1 * (weights[n] - v) for n, v in expected.items()}
    with average.swap():
        assert_close(values(net), expected)
    step.save("a.msgrad")
    other = Three()
    fresh = mg.MovingAverage(other, decay=0.9)
    mg.TrainStep(other, momentum, nn.MSELoss(), updates=fresh, unreached="allow").load("a.msgrad")
    with fresh.swap():
        assert_close(values(other), expected)


def test_an_update_of_a_frozen_weight_is_refused_before_the_step_and_forced_on_demand():
    net = Three()
    step = mg.TrainStep(net, momentum, nn.MSELoss(), updates={"a": grow}, unreached="allow")
    step(Tensor(X), Tensor(Y))
    with mg.freeze(net, "a"):
        before = mg.Snapshot(net)
        with pytest.raises(
            mg.FrozenWeightError, match=r"1 frozen of 1 weights: a\.weight; unfreeze"
        ):
            step(Tensor(X), Tensor(Y))
        assert before.compare().equal
        forced = mg.WeightUpdates(net, {"a": grow}, force=True)
        held = net.a.weight.asnumpy().copy()
        mg.TrainStep(net, momentum, nn.MSELoss(), updates=forced, unreached="allow")(
            Tensor(X), Tensor(Y)
        )
        np.testing.assert_allclose(net.a.weight.asnumpy(), grow(held), rtol=1e-6)
    moved = mg.Snapshot(net)
    step(Tensor(X), Tensor(Y))
    assert moved.moved() == list(START)


def test_updates_go_on_over_a_change_of_the_stage():
    net = Three()
    updates = mg.WeightUpdates(net, {"c": less})
    step = mg.TrainStep(net, momentum, nn.MSELoss(), updates=updates, unreached="allow")
    step(Tensor(X), Tensor(Y))
    with mg.freeze(net, "a"):
        step(Tensor(X), Tensor(Y))
    step(Tensor(X), Tensor(Y))
    assert int(updates.step.asnumpy()) == 3
    assert len({p.name for p in step.get_parameters()}) == len(list(step.get_parameters()))


WRONG = [
    pytest.param(3, r"updates int is none of", id="number"),
    pytest.param([grow], r"updates function", id="function"),
]


@pytest.mark.parametrize(("updates", "message"), WRONG)
def test_something_else_as_updates_is_refused(updates: object, message: str):
    with pytest.raises(TypeError, match=message):
        mg.TrainStep(Three(), momentum, nn.MSELoss(), updates=updates)


def test_two_updates_have_states_with_names_of_their_own(request: pytest.FixtureRequest):
    net = Three()
    both: list[Callable | nn.Cell] = [
        mg.WeightUpdates(net, {"a": grow}),
        mg.WeightUpdates(net, {"b": grow}),
    ]
    step = mg.TrainStep(net, momentum, nn.MSELoss(), updates=both, unreached="allow")
    assert {"updates.0.step", "updates.1.step"} <= {p.name for p in step.get_parameters()}
