"""A HoldOptimizer stands where its optimizer does: in Model, callbacks, stages and checkpoints."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from mindspore.experimental import optim
from mindspore.train import LearningRateScheduler, Model

import msgrad as mg
from tests.optim.hold_training import OPTIMIZERS, Make, X, Y, network


def data() -> ms.dataset.GeneratorDataset:
    rows = [(x, y) for x, y in zip(X.asnumpy(), Y.asnumpy(), strict=True)] * 2
    return ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(4)


@pytest.mark.usefixtures("mode")
def test_it_stands_in_model_and_its_callbacks_where_an_optimizer_does():
    net = network()
    optimizer = mg.HoldOptimizer(nn.Momentum(net.trainable_params(), 0.1, 0.0))
    optimizer.hold("0")
    before = mg.Snapshot(net)
    model = Model(net, nn.MSELoss(), optimizer)
    model.train(1, data(), [LearningRateScheduler(lambda rate, step: 0.5)])
    assert before.moved() == ["2.weight", "2.bias"]
    assert optimizer.optimizer.learning_rate.asnumpy() == np.float32(0.5)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        pytest.param(OPTIMIZERS["adam"], nn.Optimizer, id="nn"),
        pytest.param(OPTIMIZERS["experimental-adam"], optim.Optimizer, id="experimental"),
    ],
)
def test_it_is_the_kind_of_optimizer_that_it_holds(make: Make, kind: type):
    inner = make(network().trainable_params())
    outer = mg.HoldOptimizer(inner)
    assert isinstance(outer, kind)
    assert isinstance(outer, mg.HoldOptimizer)
    assert type(outer).__name__ == "HoldOptimizer"
    assert outer.parameters is inner.parameters


def test_methods_and_settings_are_those_of_the_optimizer():
    inner = OPTIMIZERS["momentum-dynamic"](network().trainable_params())
    outer = mg.HoldOptimizer(inner)
    assert outer.learning_rate is inner.learning_rate
    assert outer.get_lr().asnumpy() == inner.get_lr().asnumpy() == np.float32(0.1)
    assert outer.get_lr_parameter(inner.parameters[0]) is inner.learning_rate
    outer.unique = False
    assert inner.unique is False


def test_a_scheduler_of_experimental_drives_the_rate():
    outer = mg.HoldOptimizer(optim.SGD(network().trainable_params(), 0.1))
    scheduler = optim.lr_scheduler.StepLR(outer, step_size=1, gamma=0.5)
    scheduler.step()
    assert float(outer.optimizer.lrs[0].value()) == pytest.approx(0.05)


@pytest.mark.usefixtures("mode")
def test_negative_zero_and_nan_are_held_bit_by_bit():
    net = nn.Dense(2, 2, "ones", has_bias=False)
    step = nn.TrainOneStepCell(net, mg.HoldOptimizer(OPTIMIZERS["adam"]([net.weight]))).set_train()
    special = np.array([[-0.0, np.nan], [np.inf, 1e-45]], np.float32)
    step.optimizer.hold("weight")
    ops.assign(net.weight, Tensor(special))
    step(Tensor(np.ones((1, 2), np.float32)))
    assert net.weight.asnumpy().tobytes() == special.tobytes()


@pytest.mark.usefixtures("mode")
def test_holds_go_along_to_the_optimizer_of_a_new_stage():
    net = network()
    step = mg.TrainStep(
        net, lambda p: mg.HoldOptimizer(OPTIMIZERS["adam"](p)), nn.MSELoss()
    ).set_train()
    step(X, Y)
    step.optimizer.hold("2.weight")
    step.optimizer.hold_rows("2.bias", 1)
    with mg.freeze(net, "0.weight"):
        before = mg.Snapshot(net)
        step(X, Y)
        assert before.moved() == ["0.bias", "2.bias"]
        assert (step.optimizer.held, step.optimizer.held_rows) == (["2.weight"], {"2.bias": [1]})
        step.optimizer.release("2.weight")
    before = mg.Snapshot(net)
    step(X, Y)
    assert before.moved() == ["0.weight", "0.bias", "2.weight", "2.bias"]
    row = before.compare().rows[-1]
    assert (row.name, row.bits_changed) == ("2.bias", 1)


def double(w: Tensor) -> Tensor:
    return w * 2.0


@pytest.mark.usefixtures("mode")
def test_a_change_inside_the_step_counts_too():
    net = network()
    step = mg.TrainStep(
        net,
        lambda p: mg.HoldOptimizer(OPTIMIZERS["sgd-momentum"](p)),
        nn.MSELoss(),
        updates=mg.WeightUpdates(net, {"0.bias": double}, when="after_gradient"),
    ).set_train()
    step.optimizer.hold("0.bias")
    expected = net[0].bias.asnumpy() * 2
    step(X, Y)
    np.testing.assert_array_equal(net[0].bias.asnumpy(), expected)


def test_masks_are_saved_under_the_names_of_the_weights_and_copies_are_not(tmp_path):
    outer = mg.HoldOptimizer(OPTIMIZERS["adam"](network().trainable_params()))
    outer.hold("2.bias")
    ms.save_checkpoint(outer, str(tmp_path / "a.ckpt"))
    saved = ms.load_checkpoint(str(tmp_path / "a.ckpt"))
    masks = {name for name in saved if name.startswith("hold_")}
    weights = ("0.weight", "0.bias", "2.weight", "2.bias")
    assert masks == {f"hold_{what}.{n}" for n in weights for what in ("mask", "flag")}
    other = mg.HoldOptimizer(OPTIMIZERS["adam"](network().trainable_params()))
    assert ms.load_param_into_net(other, saved) == ([], [])
    assert other.held == ["2.bias"]


@pytest.mark.usefixtures("mode")
def test_may_hold_bounds_what_is_kept_and_what_can_be_held():
    net = network()
    optimizer = mg.HoldOptimizer(OPTIMIZERS["adam"](net.trainable_params()), may_hold="*.bias")
    assert [m.name for m in optimizer.masks] == ["hold_mask.0.bias", "hold_mask.2.bias"]
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()
    assert optimizer.hold(["*.bias", "!2"]) == ["0.bias"]
    before = mg.Snapshot(net)
    step(X, Y)
    assert before.moved() == ["0.weight", "2.weight", "2.bias"]
    with pytest.raises(mg.ArgumentError, match=r"leaves out 1 of 2 .*: 2\.weight; add .* may_hold"):
        optimizer.hold("2")
