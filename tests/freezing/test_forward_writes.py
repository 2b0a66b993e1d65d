"""Parameters that a cell writes itself in the forward pass: named, saved, and never silent."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg
from msgrad.freezing import forward_writes

pytestmark = pytest.mark.usefixtures("mode")


def push(queue: Parameter, value: Tensor) -> Tensor:
    return ops.assign(queue, value)


class Writing(nn.Cell):
    """A layer and something beside it that each subclass writes in a way of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(2, 2, "ones")
        self.own = Parameter(Tensor([1.0, 1.0]), name="own", requires_grad=False)
        self.assign = ops.Assign()


class ByFunction(Writing):
    def construct(self, x: Tensor) -> Tensor:
        return ops.depend(self.fc(x), ops.assign(self.own, self.own + 1.0))


class ByOperator(Writing):
    def construct(self, x: Tensor) -> Tensor:
        return ops.depend(self.fc(x), self.assign(self.own, self.own + 1.0))


class ByAlias(Writing):
    def construct(self, x: Tensor) -> Tensor:
        own = self.own
        return ops.depend(self.fc(x), ops.assign_add(own, Tensor([1.0, 1.0])))


class ByHelper(Writing):
    def construct(self, x: Tensor) -> Tensor:
        return ops.depend(self.fc(x), push(self.own, self.own + 1.0))


class ByAttribute(Writing):
    def construct(self, x: Tensor) -> Tensor:
        self.own = self.own + 1.0
        return self.fc(x)


class ByMethod(Writing):
    def construct(self, x: Tensor) -> Tensor:
        return ops.depend(self.fc(x), self.count())

    def count(self) -> Tensor:
        return ops.assign(self.own, self.own + 1.0)


class Parent(nn.Cell):
    """Writes what its child owns."""

    def __init__(self) -> None:
        super().__init__()
        self.child = Writing()

    def construct(self, x: Tensor) -> Tensor:
        own = self.child.own
        return ops.depend(self.child.fc(x), ops.assign(own, own + 1.0))


class InTraining(Writing):
    """Held by a freeze, since it asks for the mode."""

    def construct(self, x: Tensor) -> Tensor:
        if self.training:
            return ops.depend(self.fc(x), ops.assign(self.own, self.own + 1.0))
        return self.fc(x)


WRITERS = [ByFunction, ByOperator, ByAlias, ByHelper, ByAttribute, ByMethod, Parent]
X, Y = Tensor(np.ones((2, 2), np.float32)), Tensor(np.zeros((2, 1), np.float32))


def frozen(make: Callable[[], nn.Cell]) -> tuple[nn.Cell, mg.TrainStep]:
    net = nn.SequentialCell(make(), nn.Dense(2, 1, "ones"))
    mg.freeze(net, "0")
    return net, mg.TrainStep(net, lambda p: nn.SGD(p, 0.01), nn.MSELoss()).set_train()


@pytest.mark.parametrize("make", WRITERS)
def test_what_a_frozen_cell_writes_itself_is_named_by_freeze_explain_and_audit(make: Callable):
    with pytest.warns(UserWarning, match=rf"frozen cell '0' \({make.__name__}\) cannot .*writes"):
        net, step = frozen(make)
    (own,) = (p for p in net.get_parameters() if p.name.endswith("own"))
    before = mg.Snapshot(net)
    step(X, Y)
    # no freeze holds it: plain MindSpore adds 1 in each pass
    assert own.asnumpy().tolist() == [2.0, 2.0]
    assert before.moved() == [own.name, "1.weight", "1.bias"]
    told = str(mg.explain(step, own.name))
    assert "may move" in told
    assert f"of {make.__name__}." in told
    row = next(row for row in mg.audit(step, X, Y).rows if row.name == own.name)
    assert row.verdict == "leaks"


@pytest.mark.parametrize("make", WRITERS)
def test_what_a_cell_writes_itself_is_saved_and_goes_onto_its_base(make: Callable):
    net = nn.SequentialCell(make(), nn.Dense(2, 1, "ones"))
    mg.freeze(net, "1.bias")
    ms.save_checkpoint(net, "base.ckpt")
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.01), nn.MSELoss()).set_train()
    step(X, Y)
    names = mg.save_trainable(net, "own.ckpt")
    assert [name for name in names if "own" in name] == [
        p.name for p in net.get_parameters() if p.name.endswith("own")
    ]
    again = nn.SequentialCell(make(), nn.Dense(2, 1))
    mg.load_weights(again, "base.ckpt")
    mg.load_weights(again, "own.ckpt")
    for mine, right in zip(again.get_parameters(), net.get_parameters(), strict=True):
        assert mine.asnumpy().tobytes() == right.asnumpy().tobytes()


def test_what_is_written_in_training_only_is_held(recwarn: pytest.WarningsRecorder):
    net, step = frozen(InTraining)
    before = mg.Snapshot(net)
    step(X, Y)
    assert before.moved() == ["1.weight", "1.bias"]
    assert not [w for w in recwarn if "cannot be held" in str(w.message)]
    assert [v for v in forward_writes(net).values() if "InTraining.construct" in v]


def test_an_integer_counter_is_saved_and_a_mask_that_is_read_only_is_not():
    class Counting(Writing):
        def __init__(self) -> None:
            super().__init__()
            self.seen = Parameter(Tensor(0, ms.int32), name="seen", requires_grad=False)

    assert forward_writes(Counting()) == {}
    assert "0.own" not in mg.save_trainable(nn.SequentialCell(Counting()), "read.ckpt")
