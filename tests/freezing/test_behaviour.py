"""What frozen cells do: norm statistics, dropout, and all that reads the mode."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from mindspore import Tensor, mint, nn, ops

import msgrad as mg
from tests.nets.behaviour_nets import (
    Branching,
    FunctionalDropout,
    GuardedDropout,
    Jitted,
    Make,
    Recurrent,
    bits,
    both,
    data,
    equal,
    modes,
    moved,
    network,
    sgd,
    training_step,
)

pytestmark = pytest.mark.usefixtures("mode")

NORMS = [
    pytest.param(lambda: nn.BatchNorm1d(4), (6, 4), id="bn1d"),
    pytest.param(lambda: nn.BatchNorm2d(2), (4, 2, 3, 3), id="bn2d"),
    pytest.param(lambda: nn.BatchNorm3d(2), (4, 2, 2, 2, 2), id="bn3d"),
    pytest.param(lambda: nn.BatchNorm1d(4, use_batch_statistics=True), (6, 4), id="bn1d-batch"),
    pytest.param(
        lambda: nn.BatchNorm3d(2, use_batch_statistics=True), (4, 2, 2, 2, 2), id="bn3d-batch"
    ),
    pytest.param(lambda: nn.BatchNorm1d(4, affine=False), (6, 4), id="bn1d-plain"),
    pytest.param(lambda: nn.SyncBatchNorm(2), (4, 2, 3, 3), id="sync"),
    pytest.param(lambda: mint.nn.SyncBatchNorm(2), (4, 2, 3, 3), id="mint-sync"),
]
RELEASED = [
    NORMS[0],
    NORMS[4],
    NORMS[7],
    pytest.param(lambda: nn.Dropout(p=0.5), (6, 4), id="dropout"),
]
MODAL = [
    pytest.param(lambda: nn.Dropout(p=0.5), (6, 4), id="dropout"),
    pytest.param(lambda: nn.Dropout1d(p=0.5), (6, 4, 3), id="dropout1d"),
    pytest.param(lambda: nn.Dropout2d(p=0.5), (6, 4, 3, 3), id="dropout2d"),
    pytest.param(lambda: nn.Dropout3d(p=0.5), (6, 4, 3, 3, 3), id="dropout3d"),
    pytest.param(Recurrent, (2, 3, 4), id="lstm"),
    pytest.param(
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True),
        (2, 3, 4),
        id="encoder",
    ),
    pytest.param(Branching, (6, 4), id="own"),
    pytest.param(FunctionalDropout, (6, 4), id="function"),
    pytest.param(GuardedDropout, (6, 4), id="guarded"),
    pytest.param(Jitted, (6, 4), id="jitted"),
]
MINT = [
    pytest.param(lambda: mint.nn.BatchNorm1d(4), id="bn1d"),
    pytest.param(lambda: mint.nn.BatchNorm2d(4), id="bn2d"),
    pytest.param(lambda: mint.nn.BatchNorm3d(4), id="bn3d"),
]


def like(net: nn.Cell, make: Make) -> nn.SequentialCell:
    """The same network again; MindSpore cannot copy a Dropout2d."""
    twin = network(make)
    for mine, other in zip(net.get_parameters(), twin.get_parameters(), strict=True):
        other.set_data(Tensor(mine.asnumpy().copy()))
    return twin


def evaluated(net: nn.Cell, x: Tensor) -> Tensor:
    """What plain MindSpore gives for the first part, normalising with the moving statistics."""
    for _, cell in net.cells_and_names():
        if "use_batch_statistics" in cell.__dict__:
            cell.use_batch_statistics = False
    return net.set_train(False)[0](x)


@pytest.mark.parametrize(("make", "shape"), NORMS + MODAL)
def test_a_frozen_cell_in_training_gives_each_row_what_plain_mindspore_gives_it_in_evaluation(
    make: Make, shape: tuple[int, ...]
):
    net = network(make)
    plain = like(net, make)
    x = data(shape)
    expected = evaluated(plain, x)
    mg.freeze(net, "0")
    net.set_train()
    before = bits(net)
    assert equal(net[0](x), expected)
    assert equal(net[0](x), expected)
    other_mates = ops.concat((x[:1], data(shape, seed=1)[1:]))
    assert equal(net[0](other_mates)[0], expected[0])
    assert moved(net, before) == set()
    # made anew, since MindSpore forgets no graph of a method under ms.jit
    plain = network(make).set_train()
    before = bits(plain)
    assert not equal(plain[0](x), expected) or moved(plain, before)


@pytest.mark.parametrize("off", [("0", "1"), ("1",), ()], ids=["all", "some", "none"])
def test_layers_whose_flags_were_turned_off_by_hand_are_held_like_others(off: tuple[str, ...]):
    net = network(lambda: nn.SequentialCell(nn.BatchNorm1d(4), nn.Dropout(p=0.5)))
    plain = copy.deepcopy(net)
    for parameter in (p for n in off for p in net[0][int(n)].trainable_params()):
        parameter.requires_grad = False
    flags = {p.name: p.requires_grad for p in net.get_parameters()}
    frozen = mg.freeze(net, "0")
    assert mg.is_frozen(net, "0")
    x, y = data((6, 4)), data((6, 4), seed=1)
    before = bits(net)
    step = training_step(net)
    step(x, y)
    # by plain MindSpore: the last layer alone, on what the first gives in evaluation
    given = evaluated(plain, x)
    other = nn.TrainOneStepCell(
        nn.WithLossCell(plain[1], nn.MSELoss()), sgd(plain[1].trainable_params())
    )
    other.set_train()(given, y)
    assert moved(net, before) == {p.name for p in net[1].trainable_params()}
    for mine, right in zip(net[1].trainable_params(), plain[1].trainable_params(), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), right.asnumpy(), rtol=1e-5)
    frozen.undo()
    assert {p.name: p.requires_grad for p in net.get_parameters()} == flags


@pytest.mark.parametrize(("make", "shape"), RELEASED)
def test_undoing_the_freeze_lets_the_cell_train_as_if_it_never_was(
    make: Make, shape: tuple[int, ...]
):
    net = network(make)
    plain = like(net, make).set_train()
    x = data(shape)
    frozen = mg.freeze(net, "0")
    net.set_train()
    net[0](x)
    frozen.undo()
    assert modes(net) == modes(plain)
    before = bits(net)
    plain[0](x)
    trained = net[0](x)
    assert bits(net) == bits(plain)
    assert moved(net, before) or not equal(trained, net[0](x))


def test_a_norm_that_never_uses_the_batch_is_left_as_it_was():
    net = network(lambda: nn.BatchNorm1d(4, use_batch_statistics=False))
    frozen = mg.freeze(net, "0")
    net.set_train()
    assert net[0][1].use_batch_statistics is False
    frozen.undo()
    assert net[0][1].use_batch_statistics is False
    assert net[0][1].training


@pytest.mark.parametrize("make", MINT)
def test_a_norm_without_a_cpu_kernel_has_the_flags_that_hold_it(make: Make):
    net = network(make)
    frozen = mg.freeze(net, "0")
    net.set_train()
    assert net[0][1].training is False
    assert net[1].training is True
    frozen.undo()
    assert net[0][1].training is True


def test_five_training_steps_leave_the_frozen_part_and_move_the_rest_as_in_plain_mindspore():
    def make() -> nn.SequentialCell:
        frozen = nn.SequentialCell(
            nn.Dense(4, 4),
            nn.BatchNorm1d(4),
            nn.BatchNorm1d(4, use_batch_statistics=True),
            nn.Dropout(p=0.5),
        )
        return nn.SequentialCell(frozen, nn.Dense(4, 4), nn.BatchNorm1d(4))

    net = make()
    plain = copy.deepcopy(net)
    x, y = data((6, 4)), data((6, 4), seed=1)
    mg.freeze(net, "0")
    before = bits(net)
    step = training_step(net)
    for _ in range(5):
        step(x, y)
    trained = {"1.weight", "1.bias", "2.gamma", "2.beta", "2.moving_mean", "2.moving_variance"}
    assert moved(net, before) == trained

    inner = nn.TrainOneStepCell(
        nn.WithLossCell(plain, nn.MSELoss()), sgd(plain[1:].trainable_params())
    ).set_train()
    plain[0].set_train(False)
    plain[0][2].use_batch_statistics = False
    for _ in range(5):
        inner(x, y)
    values = {p.name: p.asnumpy() for p in plain.get_parameters()}
    for p in net.get_parameters():
        # the last bits differ between two graphs on the CPU
        np.testing.assert_allclose(p.asnumpy(), values[p.name], rtol=1e-4, atol=1e-6)


def test_an_optimizer_of_mindspore_built_after_the_freeze_leaves_the_frozen_part():
    net = both()
    mg.freeze(net, "0")
    loss = nn.WithLossCell(net, nn.MSELoss())
    step = nn.TrainOneStepCell(loss, sgd(net.trainable_params())).set_train()
    before = bits(net)
    x = data((6, 4))
    step(x, x)
    assert moved(net, before) == {"1.0.weight", "1.0.bias"}


def test_a_frozen_critic_passes_the_gradient_and_a_stopped_one_does_not():
    maker, critic = nn.Dense(4, 4), nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4))
    net = nn.SequentialCell(maker, critic)
    plain = copy.deepcopy(net)
    x, y = data((6, 4)), data((6, 4), seed=1)
    mg.freeze(net, "1")
    step = training_step(net)
    before = bits(net)
    step(x, y)
    assert moved(net, before) == {"0.weight", "0.bias"}
    plain[1].set_train(False)
    loss = nn.WithLossCell(plain, nn.MSELoss())
    nn.TrainOneStepCell(loss, sgd(plain[0].trainable_params()))(x, y)
    # the last bits differ between two graphs on the CPU
    np.testing.assert_allclose(maker.weight.asnumpy(), plain[0].weight.asnumpy(), 1e-5, 1e-6)
    mg.stop_gradient(net, "1", at="input")
    assert mg.reach(net, x) == ["1.0.weight", "1.0.bias", "1.1.gamma", "1.1.beta"]
    with pytest.raises(ValueError, match=r"nothing is left to train.*4 frozen.*2 that no gradient"):
        mg.TrainStep(net, sgd, nn.MSELoss())(x, y)


@pytest.mark.parametrize("force", [False, True])
def test_unfreezing_a_norm_trains_its_weights_and_never_its_statistics(force: bool):
    net = both()
    plain = copy.deepcopy(net).set_train()
    mg.freeze(net, "0")
    mg.unfreeze(net, "0", force=force)
    step = training_step(net)
    before = bits(net)
    x = data((6, 4))
    step(x, x)
    assert {"0.1.gamma", "0.1.beta"} <= moved(net, before)
    assert not {name for name in step.trainable if "moving" in name}
    plain(x)
    # as the batch alone moves them: decay would take another 0.01 of 1.0 away
    for name in ("moving_mean", "moving_variance"):
        np.testing.assert_allclose(
            getattr(net[0][1], name).asnumpy(), getattr(plain[0][1], name).asnumpy(), 1e-5
        )
