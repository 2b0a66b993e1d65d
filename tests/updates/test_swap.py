"""While an average is lent to the network, nothing takes it for the weights."""

from __future__ import annotations

import copy
from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from mindspore import dataset as ds

import msgrad as mg

pytestmark = pytest.mark.usefixtures("mode")
X, Y = Tensor([[1.0]]), Tensor([[0.0]])


class Lent:
    """A weight of 1 after one step of 0.25 at a gradient of 2, and its average by 0.75."""

    def __init__(self) -> None:
        self.net = nn.SequentialCell(nn.Dense(1, 1, "ones", has_bias=False), nn.ReLU())
        self.average = mg.MovingAverage(self.net, decay=0.75)
        self.step = mg.TrainStep(
            self.net, lambda p: nn.SGD(p, 0.25), nn.MSELoss(), updates=self.average
        ).set_train()
        self.step(X, Y)
        self.step.save("before")
        ms.save_checkpoint(self.net, "weights.ckpt")

    @property
    def weight(self) -> float:
        return float(self.net[0].weight.asnumpy()[0, 0])


def train_by_model(lent: Lent) -> None:
    rows = ds.NumpySlicesDataset({"x": X.asnumpy(), "y": Y.asnumpy()}).batch(1)
    ms.Model(lent.step).train(1, rows, dataset_sink_mode=False)


REFUSED = {
    "step": lambda lent: lent.step(X, Y),
    "model": train_by_model,
    "save": lambda lent: lent.step.save("inside"),
    "load": lambda lent: lent.step.load("before"),
    "weights": lambda lent: mg.load_weights(lent.net, "weights.ckpt"),
    "update": lambda lent: mg.update_weights(lent.net, {"*": mg.rules.multiply(2.0)}),
    "average": lambda lent: lent.average.update(),
    "other-average": lambda lent: mg.MovingAverage(lent.net).update(),
    "swap": lambda lent: mg.MovingAverage(lent.net).swap().__enter__(),
    "audit": lambda lent: mg.audit(lent.step, X, Y),
    "replay": lambda lent: mg.replay_frozen(
        lent.step,
        ds.NumpySlicesDataset({"x": X.asnumpy(), "y": Y.asnumpy()}).batch(1),
        augmented=False,
    ),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_what_trains_saves_loads_or_looks_at_training_is_refused_and_nothing_moves(call: Callable):
    lent = Lent()
    with lent.average.swap():
        assert lent.weight == 1 - 0.25 * 0.5
        with pytest.raises(mg.ArgumentError, match=r"average is swapped in already: .*leave swap"):
            call(lent)
        assert lent.weight == 1 - 0.25 * 0.5
    assert (lent.weight, int(lent.average.step.asnumpy())) == (0.5, 1)
    lent.step(X, Y)
    assert lent.weight == 0.5 - 0.25 * 2 * 0.5
    with lent.average.swap():
        assert lent.weight == 0.75 * 0.875 + 0.25 * 0.25


def test_files_of_weights_are_those_of_the_average():
    lent = Lent()
    with lent.average.swap():
        mg.save_trainable(lent.net, "average.ckpt")
        ms.export(lent.net, X, file_name="average", file_format="MINDIR")
        assert float(lent.net(X).asnumpy()[0, 0]) == 0.875
    assert float(ms.load_checkpoint("average.ckpt")["0.weight"].asnumpy()[0, 0]) == 0.875
    assert lent.weight == 0.5


def test_what_a_foreign_step_moves_inside_is_lost_and_named(caplog):
    lent = Lent()
    with lent.average.swap():
        ops.assign(lent.net[0].weight, Tensor([[3.0]]))
    assert lent.weight == 0.5
    assert "swap() puts back 0.weight, which changed inside it: what changed is lost" in caplog.text


def test_a_network_computes_with_the_averages_of_now_beside_the_one_that_trains():
    net = nn.SequentialCell(nn.Dense(1, 1, "ones", has_bias=False), nn.Dense(1, 1, "ones"))
    average = mg.MovingAverage(net, "0", decay=0.75)
    teacher = average.network
    assert teacher is average.network
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.25), nn.MSELoss(), updates=average).set_train()
    expected = 1.0
    for _ in range(3):
        step(X, Y)
        expected += 0.25 * (float(net[0].weight.asnumpy()[0, 0]) - expected)
        # what is not averaged is shared
        right = expected * net[1].weight.asnumpy()[0, 0] + net[1].bias.asnumpy()[0]
        np.testing.assert_allclose(teacher(X).asnumpy(), [[right]], rtol=1e-6)
    assert not teacher.training
    assert net.training


def test_averages_of_16_bits_are_lent_by_swap_only():
    net = nn.Dense(1, 1).to_float(ms.float16)
    net.weight.set_dtype(ms.float16)
    with pytest.raises(mg.ArgumentError, match=r"'weight' is kept in 32 bits .*use swap\(\)"):
        _ = mg.MovingAverage(net).network


def test_the_decay_of_a_warmup_is_that_of_its_formula():
    net = nn.Dense(1, 1, "zeros", has_bias=False)
    average = mg.MovingAverage(net, decay=0.2, warmup=True)
    expected = 0.0
    for number in range(4):
        ops.assign(net.weight, Tensor([[float(number + 1)]]))
        average.update()
        decay = min(0.2, (1 + number) / (10 + number))
        expected = decay * expected + (1 - decay) * (number + 1)
        with average.swap():
            np.testing.assert_allclose(net.weight.asnumpy(), [[expected]], rtol=1e-6)


def test_a_save_without_the_average_lets_it_begin_at_the_loaded_weights(caplog):
    lent = Lent()
    plain = mg.TrainStep(lent.net, lambda p: nn.SGD(p, 0.25), nn.MSELoss()).set_train()
    plain(X, Y)
    plain.save("plain")
    lent.step.load("plain")
    assert (lent.weight, int(lent.average.step.asnumpy())) == (0.25, 0)
    with lent.average.swap():
        assert lent.weight == 0.25
    told = "the save has no state of the MovingAverage over 0.weight, which begins anew"
    assert told in caplog.text


def test_a_copy_of_network_and_average_has_both_of_its_own():
    lent = Lent()
    net, average = copy.deepcopy(nn.CellList([lent.net, lent.average], auto_prefix=False))
    ops.assign(net[0].weight, Tensor([[3.0]]))
    average.update()
    with average.swap():
        assert float(net[0].weight.asnumpy()[0, 0]) == 0.75 * 0.875 + 0.25 * 3.0
    assert lent.weight == 0.5
    with lent.average.swap():
        assert lent.weight == 0.875


class Student(nn.Cell):
    """A layer, a norm and a counter that the forward pass writes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(2, 2, "ones")
        self.norm = nn.BatchNorm1d(2, momentum=0.5)
        self.seen = ms.Parameter(Tensor(0, ms.int32), name="seen", requires_grad=False)

    def construct(self, x: Tensor) -> Tensor:
        return ops.depend(self.norm(self.fc(x)), ops.assign_add(self.seen, 1))


@pytest.mark.filterwarnings("ignore:frozen cell '' .*writes 'seen'")
@pytest.mark.parametrize("tau", [1.0, 0.25])
@pytest.mark.parametrize("by_flags", [False, True], ids=["freeze", "flags"])
def test_a_teacher_follows_with_statistics_and_integers_too(tau: float, by_flags: bool):
    student = Student()
    teacher = copy.deepcopy(student)
    teacher.update_parameters_name("teacher.")
    first = {p.name: p.asnumpy().copy() for p in teacher.get_parameters()}
    if by_flags:
        for parameter in teacher.get_parameters():
            parameter.requires_grad = False
    else:
        mg.freeze(teacher, "*")
    follow = mg.WeightUpdates(teacher, {"*": mg.rules.soft_update(student, tau=tau)}, force=True)
    step = mg.TrainStep(student, lambda p: nn.SGD(p, 0.1), nn.MSELoss(), updates=follow)
    x = Tensor(np.random.default_rng(0).normal(5, 1, (8, 2)).astype(np.float32))
    step.set_train()(x, Tensor(np.zeros((8, 2), np.float32)))
    assert int(student.seen.asnumpy()) == 1
    for mine, other in zip(teacher.get_parameters(), student.get_parameters(), strict=True):
        copied = other.name == "seen" or "moving" in other.name
        share = 1.0 if copied else tau
        right = (1 - share) * first[mine.name] + share * other.asnumpy()
        np.testing.assert_allclose(mine.asnumpy(), right, rtol=1e-6, err_msg=mine.name)
    assert np.abs(teacher.norm.moving_mean.asnumpy()).min() > 1
