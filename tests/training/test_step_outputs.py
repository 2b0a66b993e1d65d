"""What the network of a step returns: a scalar loss, or with `has_aux` the loss and more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from mindspore import dataset as ds

import msgrad as mg
from tests.nets.step_nets import LossAndMore, UnpackingStep, mean_square

pytestmark = pytest.mark.usefixtures("mode")
X, Y = Tensor([[1.0, 2.0]]), Tensor([[0.0]])
# weights of 1: the output is 3, the loss 9, its gradient 2·3·x; what stands beside it has x
TRAINED = [[1 - 0.125 * 6, 1 - 0.125 * 12]]
SEVERAL = r"the network returns several values, and the gradient would be that of their sum; .*aux"
ALONE = r"has_aux=True asks for a tuple of the loss and more, and the network returns one value"


def sgd(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.SGD(parameters, 0.125)


def decaying(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.AdamWeightDecay(parameters, 0.1, weight_decay=5.0)


def dense() -> nn.Cell:
    return nn.Dense(2, 1, "ones", has_bias=False)


def weight(net: nn.Cell) -> list[list[float]]:
    return net.trainable_params()[0].asnumpy().tolist()


def numbers(value: Any) -> Any:
    """Turn the tensors of a nested value into lists, its lists and tuples into tuples."""
    if isinstance(value, Tensor):
        return value.asnumpy().tolist()
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    return tuple(map(numbers, value)) if isinstance(value, (tuple, list)) else value


def by_cell(form: str, **options: Any) -> tuple[mg.TrainStep, nn.Cell]:
    net = LossAndMore(form)
    return mg.TrainStep(net, sgd, **options).set_train(), net


def by_function(**options: Any) -> tuple[mg.TrainStep, nn.Cell]:
    net = dense()

    def forward(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        out = net(x)
        return mean_square(out, label), out

    return mg.TrainStep(forward, sgd, net=net, **options).set_train(), net


def by_loss_fn(**options: Any) -> tuple[mg.TrainStep, nn.Cell]:
    net = dense()

    def loss_fn(out: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        return mean_square(out, label), out

    return mg.TrainStep(net, sgd, loss_fn, **options).set_train(), net


WITH_MORE = [
    pytest.param(lambda: by_cell("tuple", has_aux=True), (9.0, [[3.0]]), id="tuple"),
    pytest.param(lambda: by_cell("list", has_aux=True), (9.0, [[3.0]]), id="list"),
    pytest.param(
        lambda: by_cell("nested", has_aux=True),
        (9.0, ([[3.0]], ([[6.0]], [[3.0]])), None, 3),
        id="nested",
    ),
    pytest.param(
        lambda: by_cell("dict", has_aux=True),
        (9.0, {"out": [[3.0]], "more": ([[3.0]],)}),
        id="dict",
    ),
    pytest.param(lambda: by_function(has_aux=True), (9.0, [[3.0]]), id="function"),
    pytest.param(lambda: by_loss_fn(has_aux=True), (9.0, [[3.0]]), id="loss_fn"),
    pytest.param(
        lambda: by_cell("tuple", has_aux=True, train_cell=UnpackingStep),
        (9.0, [[30.0]]),
        id="train-cell",
    ),
    pytest.param(
        lambda: by_cell("tuple", has_aux=True, unreached="allow", clip_norm=1e6),
        (9.0, [[3.0]]),
        id="options",
    ),
]


@pytest.mark.parametrize(("make", "returned"), WITH_MORE)
def test_with_has_aux_the_gradient_is_that_of_the_loss_and_all_is_returned(
    make: Callable[[], tuple[mg.TrainStep, nn.Cell]], returned: Any
):
    step, net = make()
    before = {p.name: p.asnumpy().tolist() for p in net.get_parameters()}
    assert numbers(step(X, Y)) == returned
    np.testing.assert_allclose(weight(net), TRAINED, rtol=1e-6)
    # what only the other values use has no gradient, and has left the optimizer
    others = {p.name: p.asnumpy().tolist() for p in list(net.get_parameters())[1:]}
    assert others == {name: before[name] for name in others}


REFUSED = [
    pytest.param(lambda: by_cell("tuple"), SEVERAL, id="tuple"),
    pytest.param(lambda: by_cell("tuple", unreached="allow"), SEVERAL, id="not-looked-at"),
    pytest.param(lambda: by_cell("list", unreached="allow"), SEVERAL, id="list"),
    pytest.param(lambda: by_cell("only a dict", unreached="allow"), SEVERAL, id="dict"),
    pytest.param(lambda: by_function(), SEVERAL, id="function"),
    pytest.param(lambda: by_loss_fn(unreached="allow"), SEVERAL, id="loss_fn"),
    pytest.param(lambda: by_cell("loss", has_aux=True), ALONE, id="aux-of-a-loss"),
    pytest.param(lambda: by_cell("only a dict", has_aux=True), ALONE, id="aux-of-a-dict"),
]


@pytest.mark.parametrize(("make", "told"), REFUSED)
def test_several_values_without_has_aux_and_one_with_it_are_refused_before_anything_moves(
    make: Callable[[], tuple[mg.TrainStep, nn.Cell]], told: str
):
    step, net = make()
    before = mg.Snapshot(net)
    for _ in range(2):
        with pytest.raises(mg.ArgumentError, match=told):
            step(X, Y)
    with pytest.raises(mg.ArgumentError, match=told):
        mg.audit(step, X, Y)
    assert before.moved() == []
    assert step.position.step == 0
    # an error amid a gradient would leave MindSpore unable to train anything in PYNATIVE_MODE
    other = dense()
    mg.TrainStep(other, decaying, nn.MSELoss(), unreached="allow").set_train()(X, Y)
    np.testing.assert_allclose(
        weight(other), np.full((1, 2), 1 - 0.1 * (0.1 / 0.001**0.5 + 5)), rtol=1e-5
    )


def test_a_model_trains_by_the_loss_and_shows_all_to_its_callbacks():
    def data() -> ds.Dataset:
        return ds.NumpySlicesDataset((X.asnumpy(), Y.asnumpy()), shuffle=False).batch(1)

    step, net = by_function(has_aux=True)
    seen: list[Any] = []
    told = ms.train.LambdaCallback(
        on_train_step_end=lambda context: seen.append(context.original_args().net_outputs)
    )
    ms.Model(step).train(1, data(), callbacks=[told], dataset_sink_mode=False)
    assert numbers(seen) == ((9.0, [[3.0]]),)
    np.testing.assert_allclose(weight(net), TRAINED, rtol=1e-6)
    refused, other = by_function()
    with pytest.raises(mg.ArgumentError, match=SEVERAL):
        ms.Model(refused).train(1, data(), dataset_sink_mode=False)
    assert weight(other) == [[1.0, 1.0]]


def test_a_plan_hands_has_aux_on():
    net = LossAndMore("tuple")
    plan = mg.Plan.from_dict({"plan": [{"freeze": "second"}]})
    step = plan.train_step(net, sgd, has_aux=True).set_train()
    assert numbers(step(X, Y)) == (9.0, [[3.0]])
    np.testing.assert_allclose(weight(net), TRAINED, rtol=1e-6)


def test_a_train_cell_that_scales_a_scalar_is_refused_with_has_aux():
    def scaled(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return nn.TrainOneStepWithLossScaleCell(network, optimizer, Tensor(2.0))

    with pytest.raises(mg.ArgumentError, match=r"takes a scalar loss, and has_aux=True gives"):
        by_cell("tuple", has_aux=True, train_cell=scaled)


def two_losses(out: Tensor, label: Tensor, other: Tensor) -> Tensor:
    return mean_square(out, label) + mean_square(out, other)


class TwoLosses(nn.Cell):
    """The same as a Cell."""

    def construct(self, out: Tensor, label: Tensor, other: Tensor) -> Tensor:
        return ops.square(out - label).mean() + ops.square(out - other).mean()


def any_losses(out: Tensor, *labels: Tensor) -> Tensor:
    return mean_square(out, labels[0]) + mean_square(out, labels[1])


LABELS = [
    pytest.param(two_losses, {}, id="function"),
    pytest.param(TwoLosses(), {}, id="cell"),
    pytest.param(any_losses, {"labels": 2}, id="told"),
]


@pytest.mark.parametrize(("loss_fn", "options"), LABELS)
def test_a_loss_takes_as_many_of_the_last_inputs_as_it_asks_for(
    loss_fn: Callable[..., Tensor], options: dict[str, Any]
):
    net = dense()
    step = mg.TrainStep(net, sgd, loss_fn, unreached="allow", **options).set_train()
    assert float(step(X, Y, Tensor([[1.0]]))) == 9 + 4
    # 2·3·x from the one, 2·2·x from the other
    np.testing.assert_allclose(weight(net), [[1 - 0.125 * 10, 1 - 0.125 * 20]], rtol=1e-6)
    with pytest.raises(mg.ArgumentError, match=r"its loss_fn takes 2 of them as labels"):
        step(X, Y)
