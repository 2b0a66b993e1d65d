"""Replays of heads that keep a state, over stops, and with cells that come and go meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, dataset, nn, ops

import msgrad as mg

pytestmark = pytest.mark.usefixtures("mode")
RNG = np.random.RandomState(0)
X, Y = RNG.randn(10, 4).astype(np.float32), RNG.randn(10, 2).astype(np.float32)
FRONT, BACK = RNG.randn(6, 4).astype(np.float32), RNG.randn(2, 6).astype(np.float32)


class Centred(nn.Cell):
    """A head that follows the mean of what it gives, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(6, 2, Tensor(BACK), "zeros")
        self.centre = Parameter(Tensor(np.zeros(2, np.float32)), name="centre", requires_grad=False)
        self.calls = Parameter(Tensor(0, ms.int32), name="calls", requires_grad=False)

    def construct(self, x: Tensor) -> Tensor:
        out = self.fc(x)
        centre = ops.stop_gradient(0.5 * self.centre.value() + 0.5 * out.mean(axis=0))
        out = ops.depend(out, ops.assign(self.centre, centre)) - centre
        return ops.depend(out, ops.assign_add(self.calls, 1))


def dense() -> nn.Cell:
    return nn.Dense(6, 2, Tensor(BACK), "zeros")


def made(head: Callable[[], nn.Cell], *, stop: bool = False) -> tuple[nn.Cell, mg.TrainStep]:
    net = nn.SequentialCell(nn.Dense(4, 6, Tensor(FRONT), "zeros"), nn.Tanh(), head())
    mg.freeze(net, "0")
    if stop:
        mg.stop_gradient(net, "0")
    step = mg.TrainStep(net, lambda p: nn.Momentum(p, 0.1, 0.9), nn.MSELoss(), unreached="allow")
    return net, step.set_train()


def batches(size: int = 4) -> Any:
    return dataset.NumpySlicesDataset((X, Y), shuffle=False).batch(size)


def plain(head: Callable[[], nn.Cell], epochs: int = 2) -> tuple[list[float], dict[str, Any]]:
    """What the step does without a replay."""
    net, step = made(head)
    losses = [
        float(step(*batch)) for _ in range(epochs) for batch in batches().create_tuple_iterator()
    ]
    return losses, {p.name: p.asnumpy().copy() for p in net.get_parameters()}


def assert_same(net: nn.Cell, losses: list[float], right: tuple[list[float], dict]) -> None:
    np.testing.assert_allclose(losses, right[0], rtol=1e-5)
    for parameter in net.get_parameters():
        np.testing.assert_allclose(parameter.asnumpy(), right[1][parameter.name], rtol=1e-5)


@pytest.mark.parametrize("head", [Centred, dense])
@pytest.mark.parametrize("stop", [False, True], ids=["free", "stopped"])
def test_a_head_with_a_state_trains_as_without_a_replay(head: Callable, stop: bool):
    right = plain(head)
    net, step = made(head, stop=stop)
    before = {p.name: p.asnumpy().tobytes() for p in net.get_parameters()}
    with mg.replay_frozen(step, batches(), augmented=False) as replay:
        # filling and proving ran no step, and no head
        assert {p.name: p.asnumpy().tobytes() for p in net.get_parameters()} == before
        losses = [float(loss) for _ in range(2) for loss in replay.epoch()]
    assert_same(net, losses, right)
    assert [type(w) for _, w in mg.wrapped(net)] == [mg.StopGradient] * stop


def test_wrappers_put_on_and_taken_off_amid_a_replay_leave_it_right(tmp_path: Path):
    right = plain(dense)
    net, step = made(dense, stop=True)
    few = dataset.NumpySlicesDataset((X[:4], Y[:4]), shuffle=False).batch(4)
    with mg.replay_frozen(step, few, augmented=False, folder=tmp_path) as replay:
        mg.unwrap(net)
        losses = [float(replay(*batch)) for batch in batches().create_tuple_iterator()]
        mg.stop_gradient(net, "0")
        losses += [float(replay(*batch)) for batch in batches().create_tuple_iterator()]
    assert_same(net, losses, right)
    # and so are the rows that a later run reads
    net, step = made(dense)
    with mg.replay_frozen(step, batches(), augmented=False, folder=tmp_path) as replay:
        assert_same(net, [float(loss) for _ in range(2) for loss in replay.epoch()], right)
        assert replay.misses == 0


def exchange(net: nn.SequentialCell) -> None:
    net[0] = nn.Dense(4, 6)


def take_off(net: nn.SequentialCell) -> None:
    net[0] = net[0].cell


def exchange_between(net: nn.SequentialCell) -> None:
    net[1] = nn.Sigmoid()


@pytest.mark.parametrize("change", [exchange, take_off, exchange_between])
def test_a_cell_exchanged_amid_a_replay_is_refused_and_nothing_is_kept(
    change: Callable, tmp_path: Path
):
    net, step = made(dense)
    few = dataset.NumpySlicesDataset((X[:4], Y[:4]), shuffle=False).batch(4)
    with mg.replay_frozen(step, few, augmented=False, folder=tmp_path) as replay:
        kept = replay.samples
        change(net)
        before = mg.Snapshot(net)
        for batch in batches().create_tuple_iterator():
            with pytest.raises(mg.ConflictError, match="a cell was exchanged since the replay"):
                replay(*batch)
        assert replay.samples == kept
        assert before.moved() == []


def test_a_head_exchanged_amid_a_replay_trains_on_the_same_rows():
    net, step = made(dense)
    with mg.replay_frozen(step, batches(), augmented=False) as replay:
        list(replay.epoch())
        net[2] = nn.Dense(6, 2, Tensor(2 * BACK), "zeros")
        loss = float(next(iter(replay.epoch())))
    out = np.tanh(X[:4] @ FRONT.T) @ (2 * BACK).T
    np.testing.assert_allclose(loss, ((out - Y[:4]) ** 2).mean(), rtol=1e-4)


def test_samples_of_another_size_are_refused_before_mindspore_is_asked():
    class Pooled(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 6, 3), nn.Dense(6, 2)

    net = nn.SequentialCell(nn.Conv2d(1, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), dense())
    mg.freeze(net, "0")
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss()).set_train()
    images = RNG.randn(4, 1, 8, 8).astype(np.float32)
    data = dataset.NumpySlicesDataset((images, Y[:4]), shuffle=False).batch(2)
    with mg.replay_frozen(step, data, augmented=False) as replay:
        other = Tensor(images[:2, :, :6, :6])
        told = r"samples have the shapes \(1, 6, 6\), and the replay began with \(1, 8, 8\); give"
        with pytest.raises(mg.ShapeError, match=told):
            replay(other, Tensor(Y[:2]))
        assert len(list(replay.epoch())) == 2
