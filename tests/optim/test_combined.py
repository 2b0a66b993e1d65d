"""Several optimizers in one step: each its part of the weights, its state and its rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore.experimental import optim

import msgrad as mg
from tests.nets.step_nets import Line, X, step_over, weights_of

pytestmark = pytest.mark.usefixtures("mode")
# of a `Line`: the gradients are x for a, 2x for b, 1000x for c
A, B, C = [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]


def parts(parameters: list[Parameter]) -> list[list[Parameter]]:
    """Split what is to be trained into the last term and all others."""
    last = [p for p in parameters if p.name.startswith("c")]
    return [last, [p for p in parameters if not p.name.startswith("c")]]


def two(parameters: list[Parameter]) -> list[nn.Cell | None]:
    """Make optimizers in another order than the network's, with momentum for `a` and `b`."""
    last, rest = parts(parameters)
    return [
        nn.SGD(last, 0.001) if last else None,
        nn.Momentum(rest, 0.25, 0.5) if rest else None,
    ]


class Both(nn.Cell):
    """The same as one cell of the user's own."""

    def __init__(self, parameters: list[Parameter]) -> None:
        super().__init__(auto_prefix=False)
        last, rest = parts(parameters)
        self.last, self.rest = nn.SGD(last, 0.001), nn.Momentum(rest, 0.25, 0.5)
        self.count = len(last)
        self.parameters = ParameterTuple([*self.last.parameters, *self.rest.parameters])

    def construct(self, grads: tuple[Tensor, ...]) -> Tensor:
        done = self.last(grads[: self.count])
        return ops.depend(done, self.rest(grads[self.count :]))


def by_hand(steps: int, moved: np.ndarray | None = None) -> list[list[float]]:
    """Compute the steps of `two` in NumPy; `moved` says which of a, b, c each step trains."""
    x = np.array([1.0, 2.0])
    weights, moments = np.array([A, B, C]), np.zeros((2, 2))
    for number in range(steps):
        on = np.array([True] * 3) if moved is None else moved[number]
        gradients = np.array([x, 2 * x, 1000 * x])
        moments = np.where(on[:2, None], 0.5 * moments + gradients[:2], moments)
        changes = np.concatenate([0.25 * moments, 0.001 * gradients[2:]])
        weights = np.where(on[:, None], weights - changes, weights)
    return weights.tolist()


@pytest.mark.parametrize("make", [two, Both])
def test_each_optimizer_trains_its_own_part(make: Any):
    net = Line()
    step = step_over(net, make)
    for _ in range(3):
        step(X)
    np.testing.assert_allclose(weights_of(net), by_hand(3), rtol=1e-6)


def test_state_and_counters_of_each_go_along_to_other_stages():
    net = Line()
    step = step_over(net, two)
    on = np.array([[True] * 3] * 2 + [[True, False, True]] + [[False, False, True]] + [[True] * 3])
    for now in on:
        mg.unfreeze(net)
        frozen = [name for name, trains in zip("abc", now, strict=True) if not trains]
        if frozen:
            mg.freeze(net, *frozen)
        step(X)
    np.testing.assert_allclose(weights_of(net), by_hand(5, on), rtol=1e-6)
    assert len(step.stages) == 3
    counters = {p.name: p for p in step.optimizer.get_parameters() if "global_step" in p.name}
    assert {n: int(p.asnumpy().item()) for n, p in counters.items()} == {
        "SGD.global_step": 5,
        "Momentum.global_step": 4,
    }


def test_a_rate_set_for_one_is_kept_by_a_later_stage():
    net = Line()
    mg.freeze(net, "b")
    step = step_over(net, two)
    step(X)
    last, rest = step.optimizer.optimizers
    ops.assign(rest.learning_rate, Tensor(0.0))
    mg.unfreeze(net)
    step(X)
    assert weights_of(net)[0] == [A[0] - 0.25, A[1] - 0.5]
    np.testing.assert_allclose(weights_of(net)[2], [5.0 - 2.0, 6.0 - 4.0], rtol=1e-6)
    with pytest.raises(AttributeError, match=r"2 optimizers have a 'learning_rate' each; read st"):
        _ = step.optimizer.learning_rate
    assert last is not step.optimizer.optimizers[0]


def test_the_norm_to_clip_is_that_of_all_gradients():
    net = Line()
    step_over(net, lambda p: [nn.SGD(part, 1.0) for part in parts(p)], clip_norm=1.0)(X)
    gradients = np.array([[1.0, 2.0], [2.0, 4.0], [1000.0, 2000.0]])
    expected = np.array([A, B, C]) - gradients / np.linalg.norm(gradients)
    np.testing.assert_allclose(weights_of(net), expected, rtol=1e-6)


def test_a_resumed_run_goes_on_with_the_state_of_each(tmp_path: Any):
    net = Line()
    step = step_over(net, two)
    for _ in range(2):
        step(X)
    step.save(tmp_path / "run.ckpt")
    again = Line()
    resumed = step_over(again, two)
    resumed.load(tmp_path / "run.ckpt")
    resumed(X)
    np.testing.assert_allclose(weights_of(again), by_hand(3), rtol=1e-6)


def test_optimizers_of_mindspore_and_of_experimental_go_together():
    net = Line()

    def make(parameters: list[Parameter]) -> tuple[nn.Cell, ...]:
        last, rest = parts(parameters)
        return optim.SGD(last, lr=0.001), nn.Momentum(rest, 0.25, 0.5)

    mg.freeze(net, "b")
    step = step_over(net, make)
    for _ in range(2):
        step(X)
    mg.unfreeze(net)
    step(X)
    on = np.array([[True, False, True]] * 2 + [[True] * 3])
    np.testing.assert_allclose(weights_of(net), by_hand(3, on), rtol=1e-6)


def test_audit_explanation_and_hold_see_each_of_them():
    net = Line()

    def make(parameters: list[Parameter]) -> list[nn.Cell]:
        last, rest = parts(parameters)
        return [nn.SGD(last, 0.001), mg.HoldOptimizer(nn.Momentum(rest, 0.25, 0.5))]

    step = step_over(net, make)
    step.optimizer.optimizers[1].hold("b")
    audit = mg.audit(step, X)
    assert [(row.lr, row.verdict) for row in audit.rows] == [
        (0.25, "trained"),
        (0.25, "held"),
        (0.001, "trained"),
    ]
    assert audit.problems == []
    assert "Momentum holds it, rate 0.25" in str(mg.explain(step, "a.weight"))
    assert "SGD holds it, rate 0.001" in str(mg.explain(step, "c.weight"))
    step(X)
    assert weights_of(net)[1] == B


def test_a_plan_holds_in_what_a_list_makes():
    net = Line()
    plan = mg.Plan.from_dict({"plan": [{"hold": "b"}]})
    step = plan.train_step(net, two, unreached="allow").set_train()
    step(X)
    assert weights_of(net)[:2] == [[A[0] - 0.25, A[1] - 0.5], B]


def over(*chosen: slice) -> Any:
    return lambda parameters: [nn.SGD(parameters[part], 0.1) for part in chosen]


REFUSED = [
    pytest.param(
        over(slice(0, 2), slice(1, 3)),
        r"weight 'b\.weight' is in optimizer 1 and 2 of 2",
        id="twice",
    ),
    pytest.param(
        over(slice(0, 1), slice(1, 2)),
        r"holds other parameters than it was.*\ngiven: 3: a.*\nholds: 2: a\.weight, b\.weight",
        id="one-left-out",
    ),
    pytest.param(lambda p: [], r"optimizer returned an empty list; return at least one", id="none"),
    pytest.param(
        lambda p: [nn.SGD(p, 0.1), nn.Dense(1, 1)],
        r"optimizer returned a list; .* or several: a Dense is in the list",
        id="something-else",
    ),
]


@pytest.mark.parametrize(("make", "told"), REFUSED)
def test_what_does_not_share_the_weights_out_is_refused(make: Any, told: str):
    with pytest.raises(mg.MsgradError, match=told):
        mg.TrainStep(Line(), make)
