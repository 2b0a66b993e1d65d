"""Training by a plan: what it keeps stays to the bit, the rest moves as MindSpore moves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

import msgrad as mg
from tests.nets.plan_nets import Staged

pytestmark = pytest.mark.usefixtures("mode")

X = Tensor(np.linspace(-1, 1, 15).reshape(5, 3), ms.float32)
Y = Tensor(np.linspace(0, 2, 10).reshape(5, 2), ms.float32)
# Two compiled programs: sums in another order, a few units in the last place per step.
RTOL, ATOL = 1e-5, 1e-6


def twins() -> tuple[Staged, Staged]:
    """Return two networks of equal values."""
    one, other = Staged(), Staged()
    for source, target in zip(one.get_parameters(), other.get_parameters(), strict=True):
        target.set_data(Tensor(source.asnumpy().copy()))
    return one, other


def values(net: nn.Cell) -> dict[str, np.ndarray]:
    return {p.name: p.asnumpy().copy() for p in net.get_parameters()}


def weights(net: nn.Cell, *layers: str) -> list:
    return [p for p in net.trainable_params() if p.name.partition(".")[0] in layers]


def plain(net: nn.Cell, optimizer: nn.Cell) -> Callable[[], None]:
    """Return a step of MindSpore's own, eager in both modes: that compiles nothing."""
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()

    def once() -> None:
        mode = ms.get_context("mode")
        ms.set_context(mode=ms.PYNATIVE_MODE)
        step(X, Y)
        ms.set_context(mode=mode)

    return once


def assert_moved_as(found: dict, expected: dict, names: set[str], before: dict) -> None:
    """Assert that just these moved, to MindSpore's values, and all else kept its bits."""
    moved = {name for name in found if found[name].tobytes() != before[name].tobytes()}
    assert moved == names
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], rtol=RTOL, atol=ATOL, err_msg=name)


def test_what_is_frozen_stays_and_groups_are_those_made_by_hand():
    net, other = twins()
    before = values(net)
    plan = mg.Plan.from_dict(
        {
            "plan": [
                {"freeze": ["fc1", "norm"]},
                {"group": "*.bias", "weight_decay": 0.0},
                {"group": "fc2", "lr_scale": 0.5},
            ]
        }
    )
    step = plan.train_step(
        net, lambda g: nn.Momentum(g, 0.1, 0.9), nn.MSELoss(), lr=0.1, weight_decay=0.2
    ).set_train()

    for parameter in weights(other, "fc1", "norm"):
        parameter.requires_grad = False
    kinds = {
        (layer, kind): [getattr(getattr(other, layer), kind)]
        for layer in ("fc2", "fc3", "head")
        for kind in ("weight", "bias")
    }
    by_hand = [
        {
            "params": params,
            "lr": 0.05 if layer == "fc2" else 0.1,
            "weight_decay": 0.2 if kind == "weight" else 0.0,
        }
        for (layer, kind), params in kinds.items()
    ]
    oracle = plain(other, nn.Momentum(by_hand, 0.1, 0.9))
    other.norm.set_train(False)

    for _ in range(3):
        step(X, Y)
        oracle()
    moving = {f"{layer}.{kind}" for layer, kind in kinds}
    assert_moved_as(values(net), values(other), moving, before)


def test_stages_with_groups_train_one_set_after_the_other():
    net, other = twins()
    plan = mg.Plan.from_dict(
        {
            "plan": [{"freeze": ["fc1", "norm"]}, {"group": "fc3", "lr_scale": 0.1}],
            "stages": [
                {"train": "head", "steps": 1},
                {"train": "fc3", "steps": 1, "cumulative": True},
                {"train": "the rest"},
            ],
        }
    )
    step = plan.train_step(net, lambda g: nn.SGD(g, 0.1), nn.MSELoss(), lr=0.1, unreached="allow")
    step.set_train()
    schedule = plan.schedule(step)
    assert schedule is not None
    for done, layers in enumerate((["head"], ["fc3", "head"], ["fc2"])):
        before = values(net)
        schedule.at(step=done)
        step(X, Y)
        rates = {"fc3": 0.01}
        groups = [{"params": weights(other, at), "lr": rates.get(at, 0.1)} for at in layers]
        oracle = plain(other, nn.SGD(groups, 0.1))
        other.norm.set_train(False)
        oracle()
        names = {p.name for p in weights(other, *layers)}
        assert_moved_as(values(net), values(other), names, before)
    assert step.stages == [
        ["head.weight", "head.bias"],
        ["fc3.weight", "fc3.bias", "head.weight", "head.bias"],
        ["fc2.weight", "fc2.bias"],
    ]


def test_gradients_are_stopped_scaled_and_reversed_as_the_rules_say():
    net, other = twins()
    before = values(net)
    plan = mg.Plan.from_dict(
        {
            "plan": [
                {"scale": "fc3", "by": 0.5},
                {"reverse": "fc2", "by": 2.0},
                {"stop": "norm", "at": "input"},
            ]
        }
    )
    step = plan.train_step(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss(), unreached="allow")
    step.set_train()
    step(X, Y)
    plain(other, nn.SGD(other.trainable_params(), 0.1))()
    factors = {"fc1": 0.0, "norm": -1.0, "fc2": 0.5, "fc3": 0.5, "head": 1.0}
    found, free = values(net), values(other)
    for parameter in net.trainable_params():
        name = parameter.name
        expected = factors[name.partition(".")[0]] * (free[name] - before[name])
        np.testing.assert_allclose(
            found[name] - before[name], expected, rtol=RTOL, atol=ATOL, err_msg=name
        )
    assert found["fc1.weight"].tobytes() == before["fc1.weight"].tobytes()
    assert found["norm.beta"].tobytes() != before["norm.beta"].tobytes()


def test_updates_run_and_held_rows_stay():
    Path("mine.py").write_text("def halve(w):\n    return w * 0.5\n", encoding="utf-8")
    Path("plan.yaml").write_text(
        "plan:\n- hold: head\n  rows: [1]\n- freeze: fc3\n"
        "- update: fc3.weight\n  fn: clip\n  args: {low: -0.1, high: 1e-1}\n  force: true\n"
        "updates:\n  fc2.weight: mine.py:halve\n",
        encoding="utf-8",
    )
    net, other = twins()
    before = values(net)
    plan = mg.Plan.from_file("plan.yaml")
    step = plan.train_step(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss(), unreached="allow")
    step.set_train()
    step(X, Y)
    oracle = plain(other, nn.SGD(weights(other, "fc1", "norm", "fc2", "head"), 0.1))
    oracle()
    expected, found = values(other), values(net)
    expected["fc2.weight"] *= 0.5
    expected["fc3.weight"] = np.clip(before["fc3.weight"], -0.1, 0.1)
    for name in ("head.weight", "head.bias"):
        assert found[name][1].tobytes() == before[name][1].tobytes()
        assert found[name][0].tobytes() != before[name][0].tobytes()
        expected[name][1] = before[name][1]
    moving = set(before) - {"fc3.bias"}
    assert_moved_as(found, expected, moving, before)
