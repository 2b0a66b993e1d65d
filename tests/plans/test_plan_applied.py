"""Applying a plan: nothing half-done, nothing twice, and undone without a trace."""

from __future__ import annotations

import pytest
from mindspore import Tensor, nn, ops

import msgrad as mg
from msgrad.plans import _apply
from tests.nets.plan_nets import Small, Staged
from tests.plans.plan_states import RULES, a_net, state_of


@pytest.fixture
def plan() -> mg.Plan:
    return mg.Plan.from_dict({"plan": RULES})


def test_undo_gives_the_same_objects_flags_and_bits_back(plan):
    net = a_net()
    before = state_of(net)
    applied = plan.apply(net)
    assert applied.frozen == ["fc1.weight", "norm.gamma", "norm.beta"]
    assert applied.wrapped == ["norm", "fc2", "head"]
    kinds = [(path, type(wrapper).__name__) for path, wrapper in mg.wrapped(net)]
    assert kinds == [
        ("norm", "ScaleGradient"),
        ("norm", "StopGradient"),
        ("fc2", "ReverseGradient"),
        ("head", "ReverseGradient"),
    ]
    assert net.norm.training is False
    assert repr(applied) == "Applied(3 frozen, 3 wrapped)"
    applied.undo()
    assert state_of(net) == before
    applied.undo()
    assert state_of(net) == before
    assert repr(applied) == "Applied(3 frozen, 3 wrapped, undone)"


def fail_under(plan: mg.Plan, net: nn.Cell, before: dict) -> None:
    with plan.apply(net):
        assert state_of(net) != before
        raise RuntimeError("stop here")


def test_a_context_ends_an_application_by_an_exception_too(plan):
    net = a_net()
    before = state_of(net)
    with pytest.raises(RuntimeError, match="stop here"):
        fail_under(plan, net, before)
    assert state_of(net) == before


def test_applying_twice_changes_nothing_and_its_undo_takes_nothing_back(plan):
    net = a_net()
    before = state_of(net)
    first = plan.apply(net)
    once = state_of(net)
    # an equal plan that was read again is the same plan
    second = mg.Plan.from_dict(plan.to_dict()).apply(net)
    assert state_of(net) == once
    assert (second.frozen, second.wrapped) == ([], [])
    second.undo()
    assert state_of(net) == once
    first.undo()
    assert state_of(net) == before


def test_what_was_taken_away_by_hand_is_put_back_by_applying_again(plan):
    net = a_net()
    plan.apply(net)
    mg.unwrap(net, "fc2")
    mg.unfreeze(net, "norm")
    again = plan.apply(net)
    assert again.frozen == ["norm.gamma", "norm.beta"]
    assert again.wrapped == ["fc2"]


def test_two_plans_are_undone_in_any_order():
    net = Staged()
    before = state_of(net)
    one = mg.Plan.from_dict({"plan": [{"freeze": "fc1"}, {"stop": "fc2"}]}).apply(net)
    two = mg.Plan.from_dict({"plan": [{"freeze": ["fc1", "head"]}, {"stop": "fc2"}]}).apply(net)
    assert len(mg.wrapped(net)) == 2
    one.undo()
    assert [mg.is_frozen(net, name) for name in ("fc1", "head", "fc3")] == [True, True, False]
    assert [path for path, _ in mg.wrapped(net)] == ["fc2"]
    two.undo()
    assert state_of(net) == before


@pytest.mark.parametrize("failing", ["make_claims", "_wrapper"])
def test_nothing_is_half_done_after_an_exception_half_way(plan, failing, monkeypatch):
    net = a_net()
    before = state_of(net)
    real, calls = getattr(_apply, failing), []

    def fail(*arguments):
        calls.append(arguments)
        if failing == "make_claims" or len(calls) == 3:
            raise RuntimeError("broken half way")
        return real(*arguments)

    monkeypatch.setattr(_apply, failing, fail)
    with pytest.raises(RuntimeError, match="broken half way"):
        plan.apply(net)
    assert calls
    assert state_of(net) == before


class Dropping(nn.Cell):
    """A layer that drops whatever the mode is, which a freeze warns of."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 4)

    def construct(self, x: Tensor) -> Tensor:
        return ops.dropout(self.fc(x), 0.5)


def test_nothing_is_half_done_where_a_warning_is_an_error():
    net = nn.SequentialCell(Dropping(), nn.Dense(4, 2))
    before = state_of(net)
    plan = mg.Plan.from_dict({"plan": [{"stop": "0.fc"}, {"freeze": "0"}]})
    with pytest.raises(UserWarning, match=r"calls dropout without training=self\.training"):
        plan.apply(net)
    assert state_of(net) == before


def test_a_network_that_is_no_cell_is_refused():
    with pytest.raises(mg.ArgumentTypeError, match="net 'fc1' is no Cell"):
        mg.Plan.from_dict({}).apply("fc1")  # pyright: ignore[reportArgumentType]


def test_names_and_order_are_the_same_under_a_plan():
    net, other = Small(), Small()
    mg.Plan.from_dict({"plan": [{"stop": ["conv1", "blocks.1"]}]}).apply(net)
    assert [n for n, _ in net.parameters_and_names()] == [
        n for n, _ in other.parameters_and_names()
    ]
