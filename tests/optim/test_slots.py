"""Whose state is it: the names and places in which MindSpore's optimizers keep what they keep."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore.experimental import optim

import msgrad as mg
from msgrad.optim import own_parameters, owner_of, rates_of, replace_parameters
from tests.nets.step_nets import Line, ScaledStep, Trap, X, weights_of
from tests.training.contract import ROWS

NAMES = {"weight", "head.weight", "encoder.head.weight"}
OWNERS = [
    pytest.param("moments.encoder.head.weight", "encoder.head.weight", id="longest-name"),
    pytest.param("moments.head.weight", "head.weight", id="shorter-name"),
    pytest.param("moments.weight", "weight", id="name-without-a-dot"),
    pytest.param("eta_encoder.head.weight", "encoder.head.weight", id="asgd-joins-without-a-dot"),
    pytest.param("mu_product_head.weight", "head.weight", id="nadam"),
    pytest.param("exp_avg_sq_row_encoder.head.weight", "encoder.head.weight", id="adafactor-rows"),
    pytest.param("global_step", None, id="counter"),
    pytest.param("moments.other.bias", None, id="foreign"),
]


@pytest.mark.parametrize(("state", "owner"), OWNERS)
def test_a_slot_belongs_to_the_longest_name_that_ends_it(state: str, owner: str | None):
    assert owner_of(state, NAMES) == owner


def test_slots_in_plain_lists_are_found_too():
    net = Trap()
    weights = net.trainable_params()
    found = {p.name for p in own_parameters(optim.NAdam(weights), weights)}
    assert {f"mu_product_{p.name}" for p in weights} < found
    assert {f"exp_avg.{p.name}" for p in weights} < found
    assert not found & {p.name for p in weights}


def test_a_loss_scale_that_is_no_cell_is_found_too():
    net = Trap()
    step = ScaledStep(net, nn.SGD(net.trainable_params(), 0.1))
    found = {id(p) for p in own_parameters(step, net.get_parameters())}
    assert {id(step.scaler.scale_value), id(step.skipped)} < found


def test_a_rate_is_that_of_the_group_whatever_kind_of_optimizer():
    first, *rest = Trap().trainable_params()
    groups = [{"params": [first], "lr": 0.5}, {"params": rest, "lr": 0.25}]
    nn_rates = rates_of(nn.SGD([dict(g) for g in groups], 1.0))
    exp_rates = rates_of(optim.SGD([dict(g) for g in groups], 1.0))
    expected = {first.name: 0.5} | {p.name: 0.25 for p in rest}
    assert {n: float(r.asnumpy()) for n, r in nn_rates.items()} == expected
    assert {n: float(r.asnumpy()) for n, r in exp_rates.items()} == expected


def test_a_rate_that_a_rule_computes_has_no_parameter():
    weights = Trap().trainable_params()
    assert rates_of(nn.SGD(weights, nn.ExponentialDecayLR(0.5, 0.5, 1))) == {}


class Keeper(nn.Cell):
    """Keeps parameters in every way that the optimizers of MindSpore do."""

    def __init__(self, parameters: list[Parameter]) -> None:
        super().__init__()
        one, two, three = parameters
        self.one = one
        self.both = ParameterTuple([one, two])
        self.listed = [three]
        self.by_name = {"two": two, "deep": [(three,)]}
        self.inner = nn.SequentialCell(nn.Dense(1, 1))
        self.inner[0].extra = three


def made(*names: str) -> list[Parameter]:
    return [Parameter(Tensor([1.0]), name=name) for name in names]


def test_a_parameter_is_replaced_wherever_a_cell_keeps_it():
    old, new = made("a", "b", "c"), made("a", "b", "c")
    keeper = Keeper(old)
    listed, by_name = keeper.listed, keeper.by_name
    replace_parameters(keeper, {id(o): n for o, n in zip(old, new, strict=True)})
    one, two, three = new
    assert keeper.one is one
    assert isinstance(keeper.both, ParameterTuple)
    assert [id(p) for p in keeper.both] == [id(one), id(two)]
    assert keeper.listed is listed
    assert listed[0] is three
    assert keeper.by_name is by_name
    assert by_name["two"] is two
    assert by_name["deep"][0][0] is three
    assert keeper.inner[0].extra is three
    assert not {id(p) for p in old} & {id(p) for p in keeper.get_parameters()}


def test_a_parameter_that_is_not_named_stays():
    old = made("a", "b", "c")
    keeper = Keeper(old)
    both = keeper.both
    replace_parameters(keeper, {})
    assert keeper.both is both
    assert keeper.one is old[0]


@pytest.mark.parametrize("name", ROWS)
def test_all_stages_keep_their_slots_in_the_same_parameters(name: str):
    net = Trap()
    step = mg.TrainStep(net, ROWS[name].make, unreached="allow")
    stages = []
    for change in (lambda: None, lambda: mg.freeze(net, "encoder.*"), lambda: mg.unfreeze(net)):
        change()
        step.prepare(runs=True)
        state = own_parameters(step.optimizer, net.get_parameters())
        names = {p.name for p in net.get_parameters()}
        stages.append({p.name: p for p in state if owner_of(p.name, names)})
    whole, part, again = stages
    assert all(part[name] is whole[name] for name in part)
    assert all(again[name] is whole[name] for name in again)
    # of what went, nothing came along
    assert not {n for n in part if owner_of(n, {"encoder.head.weight", "encoder.head.bias"})}


def test_what_a_hold_optimizer_holds_follows_the_state_that_stages_share():
    net = Trap()
    step = mg.TrainStep(
        net, lambda p: mg.HoldOptimizer(nn.Momentum(p, 0.1, 0.9)), unreached="allow"
    )
    step.prepare(runs=True)
    whole = {p.name: p for p in step.optimizer.optimizer.moments}
    mg.freeze(net, "encoder.*")
    step.prepare(runs=True)
    held = step.optimizer
    assert all(p is whole[p.name] for p in held.optimizer.moments)
    kept = {id(value) for value in held._values}
    assert {id(p) for p in held.optimizer.moments} < kept


class Rule(nn.Cell):
    def __init__(self, moment: Parameter) -> None:
        super().__init__(auto_prefix=False)
        self.moment = moment

    def construct(self, weight: Parameter, gradient: Tensor) -> Tensor:
        ops.assign(self.moment, 0.9 * self.moment + gradient)
        return ops.assign(weight, weight - 0.1 * self.moment)


class Own(nn.Optimizer):
    """A user's optimizer that also keeps its slots where nobody can exchange them."""

    def __init__(self, parameters: list[Parameter]) -> None:
        super().__init__(0.1, parameters)
        self.moments = self._parameters.clone(prefix="moments", init="zeros")
        self.each = [Rule(moment) for moment in self.moments]
        self.calls = Counter(made=1)

    def construct(self, grads: tuple[Tensor, ...]) -> bool:
        for n in range(len(grads)):
            self.each[n](self._parameters[n], grads[n])
        return True


def test_an_optimizer_of_the_users_own_keeps_its_slots_and_goes_on_with_its_momentum(mode):
    net = Line()
    step = mg.TrainStep(net, Own, trainable=["a", "b"]).set_train()
    with mg.freeze(net, "b"):
        step(X)
        step(X)
    step(X)
    # the gradient of a is [1, 2], so that it moves by 0.1, 0.19 and 0.271 of that
    np.testing.assert_allclose(weights_of(net)[0], [1 - 0.561, 2 - 1.122], rtol=1e-5)
    moments = {p.name: p.asnumpy() for p in step.optimizer.get_parameters()}
    (moment,) = (value for name, value in moments.items() if name.startswith("moments.a"))
    np.testing.assert_allclose(moment, [2.71, 5.42], rtol=1e-5)
    assert step.optimizer.calls == Counter(made=1)
