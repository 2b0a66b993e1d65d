"""Updates inside a step: before its forward pass, behind its gradient, after its optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.errors import ArgumentTypeError
from msgrad.optim import OptimizerWrapper
from msgrad.updates import MovingAverage, WeightUpdates


def as_updates(network: nn.Cell, updates: object) -> list[WeightUpdates | MovingAverage]:
    """Return the updates of a step as cells, with names for their states that differ."""
    given = list(updates) if isinstance(updates, (list, tuple)) else [updates]
    cells = [_as_cell(network, update) for update in given if update is not None]
    for number, cell in enumerate(cells):
        cell.name_state(f"updates.{number}")
    return cells


def _as_cell(network: nn.Cell, update: object) -> WeightUpdates | MovingAverage:
    if isinstance(update, Mapping):
        return WeightUpdates(network, update)
    if isinstance(update, (WeightUpdates, MovingAverage)):
        return update
    raise ArgumentTypeError(
        f"updates {type(update).__name__} is none of WeightUpdates, dict of rules, MovingAverage; "
        "give one, or a list"
    )


def check_updates(updates: Iterable[nn.Cell]) -> None:
    """Refuse updates of weights frozen or exchanged since, before a stage is entered."""
    for update in updates:
        if isinstance(update, (WeightUpdates, MovingAverage)):
            update.check()


class UpdatingOptimizer(OptimizerWrapper):
    """Run updates between the gradient and the optimizer, and after it.

    Around the optimizer they run once for each of its updates, whatever train cell decides when
    that is.
    """

    def __init__(self, optimizer: nn.Cell, updates: Sequence[Any], due: Parameter | None) -> None:
        super().__init__(optimizer)
        self.between = nn.CellList(
            [u for u in updates if u.when == "after_gradient"], auto_prefix=False
        )
        self.after = nn.CellList([u for u in updates if u.when == "after_step"], auto_prefix=False)
        self.counts = due is not None
        if due is not None:
            self.due = due

    def construct(self, grads: tuple[Tensor, ...]) -> Any:
        for update in self.between:
            grads = ops.depend(grads, update())
        done = self.optimizer(grads)
        for update in self.after:
            done = ops.depend(done, update())
        if self.counts:
            done = ops.depend(done, ops.assign(self.due, Tensor(True, mstype.bool_)))
        return done


class UpdatingStep(nn.Cell):
    """Run updates before the forward pass of a train cell.

    A train cell of the user's may call the optimizer only sometimes; `due` then says that it did
    since.
    """

    def __init__(self, inner: nn.Cell, updates: Sequence[Any], due: Parameter | None) -> None:
        super().__init__(auto_prefix=False)
        self.inner = inner
        self.before = nn.CellList(
            [u for u in updates if u.when == "before_forward"], auto_prefix=False
        )
        self.counts = due is not None
        if due is not None:
            self.due = due

    def construct(self, first: Tensor, *others: Tensor) -> Any:
        if not self.counts:
            first = ops.depend(first, self.update())
        elif self.due:
            first = ops.depend(first, self.update())
            first = ops.depend(first, ops.assign(self.due, Tensor(False, mstype.bool_)))
        return self.inner(first, *others)

    def update(self) -> Tensor:
        """Run all of them, in order."""
        done = Tensor(0, mstype.int32)
        for update in self.before:
            done = ops.depend(done, update())
        return done
