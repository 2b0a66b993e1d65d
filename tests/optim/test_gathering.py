"""Gradients gathered over calls, clipped by value, and scaled losses, against plain MindSpore."""

from __future__ import annotations

import logging
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

import msgrad as mg
from tests.nets.step_nets import Line, Trap, X, batches, decaying, step_over, values_of, weights_of

pytestmark = pytest.mark.usefixtures("mode")


def adam(parameters: list[Parameter]) -> nn.Cell:
    return nn.AdamWeightDecay(parameters, 0.1, weight_decay=0.01)


def plain(net: nn.Cell, rows: list[Any], count: int) -> list[float]:
    """Train with the mean gradient of so many batches, in PYNATIVE style of MindSpore's own."""
    optimizer = adam(net.trainable_params())
    gradients = ms.value_and_grad(net, None, optimizer.parameters)
    losses = []
    for start in range(0, len(rows) - count + 1, count):
        found = [gradients(*batch) for batch in rows[start : start + count]]
        losses += [float(loss.asnumpy()) for loss, _ in found]
        means = tuple(
            sum(each[1:], each[0]) / count for each in zip(*(g for _, g in found), strict=True)
        )
        optimizer(means)
    return losses


def test_the_mean_gradient_of_so_many_calls_makes_one_update():
    net, other = Trap(), Trap()
    for parameter, right in zip(net.get_parameters(), other.get_parameters(), strict=True):
        right.set_data(Tensor(parameter.asnumpy().copy()))
    rows = batches(6)
    step = mg.TrainStep(net, adam, accumulate=3, unreached="allow").set_train()
    before = values_of(net)
    losses = []
    for number, batch in enumerate(rows, 1):
        losses.append(float(step(*batch).asnumpy()))
        if number < 3:
            assert values_of(net).keys() == before.keys()
            assert all((values_of(net)[n] == before[n]).all() for n in before)
    np.testing.assert_allclose(losses, plain(other, rows, 3), rtol=1e-5)
    for mine, right in zip(net.get_parameters(), other.get_parameters(), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), right.asnumpy(), rtol=1e-4, atol=1e-6)


def test_updates_run_once_for_each_update_and_the_clip_counts_the_mean():
    net = Line()
    seen = mg.MovingAverage(net, decay=0.5)
    step = step_over(
        net, lambda p: nn.SGD(p, 1.0), trainable="a", accumulate=2, clip_norm=1.0, updates=seen
    )
    for calls in range(1, 5):
        step(X)
        assert int(seen.step.asnumpy()) == calls // 2
    unit = np.array([1.0, 2.0]) / np.sqrt(5)
    np.testing.assert_allclose(weights_of(net)[0], [1, 2] - 2 * unit, rtol=1e-6)


def test_what_is_gathered_goes_on_after_a_load_amid_a_window():
    def made() -> tuple[nn.Cell, mg.TrainStep]:
        net = Line()
        return net, step_over(net, lambda p: nn.SGD(p, 0.25), trainable="a", accumulate=3)

    net, step = made()
    step(X)
    step(2 * X)
    step.save("amid")
    net, step = made()
    assert step.load("amid") == (2, 0)
    step(3 * X)
    assert weights_of(net)[0] == [1 - 0.25 * 2, 2 - 0.25 * 4]


def test_a_stage_that_changes_amid_a_window_drops_what_was_gathered_and_says_so(caplog):
    net = Line()
    mg.freeze(net, "b", "c")
    step = step_over(net, lambda p: nn.SGD(p, 0.25), accumulate=2)
    step(8 * X)
    mg.unfreeze(net, "b")
    with caplog.at_level(logging.WARNING, "msgrad"):
        step(X)
        step(X)
    assert weights_of(net)[:2] == [[0.75, 1.5], [2.5, 3.0]]
    assert "within a window: the gradients of 1 of 2 calls are dropped" in caplog.text


def test_each_element_is_clipped_before_the_norm_is():
    net = Line()
    step_over(net, lambda p: nn.SGD(p, 1.0), trainable="a", clip_value=1.5)(X)
    assert weights_of(net)[0] == [1 - 1.0, 2 - 1.5]
    net = Line()
    step_over(net, lambda p: nn.SGD(p, 1.0), trainable="a", clip_value=1.0, clip_norm=1.0)(X)
    np.testing.assert_allclose(weights_of(net)[0], np.array([1, 2]) - np.sqrt(0.5), rtol=1e-6)


@pytest.mark.parametrize("scale", [1024.0, "dynamic"])
def test_a_scaled_loss_moves_what_an_unscaled_one_moves_and_skips_what_overflows(scale: Any):
    net, other = Line(), Line()
    step = step_over(net, decaying, trainable=["a", "b"], loss_scale=scale)
    right = step_over(other, decaying, trainable=["a", "b"])
    for _ in range(2):
        step(X)
        right(X)
    np.testing.assert_allclose(weights_of(net), weights_of(other), rtol=1e-5)
    before = weights_of(net)
    step(Tensor([float("inf"), 1.0], ms.float32))
    assert weights_of(net) == before
    step(X)
    right(X)
    np.testing.assert_allclose(weights_of(net), weights_of(other), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"accumulate": 0}, "accumulate 0 is no number of calls"),
        ({"accumulate": True}, "accumulate True is no number"),
        ({"clip_value": -1.0}, r"clip_value -1\.0 is not above 0"),
        ({"loss_scale": "fast"}, "loss_scale 'fast' is no scale"),
        ({"loss_scale": 8.0, "train_cell": nn.TrainOneStepCell}, "does not go with train_cell="),
        ({"loss_scale": 8.0, "has_aux": True}, "does not go with has_aux=True"),
    ],
    ids=["none", "boolean", "negative", "text", "train-cell", "aux"],
)
def test_what_cannot_be_meant_is_refused_at_once(options: dict[str, Any], told: str):
    with pytest.raises(mg.ArgumentError, match=told):
        mg.TrainStep(Line(), decaying, **options)


def test_a_plan_hands_them_on():
    net = Line()
    plan = mg.Plan.from_dict({"plan": [{"freeze": "{b,c}"}]})
    options = {"accumulate": 2, "clip_value": 1.5, "loss_scale": 8}
    step = plan.train_step(net, lambda p: nn.SGD(p, 0.5), **options).set_train()
    step(X)
    assert weights_of(net)[0] == [1.0, 2.0]
    step(X)
    np.testing.assert_allclose(weights_of(net)[0], [1 - 0.5, 2 - 0.75], rtol=1e-6)
