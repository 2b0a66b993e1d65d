"""The stages of a step: each a train cell of its own, entered with the state of the last one."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.network import copy_of, every_cell, write
from msgrad.optim import (
    GATHERED,
    AccumulatingOptimizer,
    ClippedOptimizer,
    as_one,
    check_keywords,
    made_with,
)
from msgrad.training._gradient_calls import misordered
from msgrad.training._loss import check_train_cell, guarded
from msgrad.training._parallel import check_change, check_optimizer, check_stage
from msgrad.training._state_transfer import CellState, StateTransfer, first_values, share_slots
from msgrad.training._updates_in_step import UpdatingOptimizer, UpdatingStep

logger = logging.getLogger("msgrad")


@dataclass(frozen=True)
class StageCell:
    """What one stage trains, the user's optimizer, and the train cell that does a step."""

    key: tuple[Hashable, Hashable]
    names: list[str]
    optimizer: nn.Cell
    inner: nn.Cell
    keeping: CellState
    settings: dict[str, Any]


class StageCells:
    """Makes, keeps and enters the stages of one network.

    Stages that train the same set share an optimizer.
    """

    def __init__(
        self,
        network: nn.Cell,
        make_optimizer: Callable[[list[Parameter]], Any],
        train_cell: Callable[[nn.Cell, nn.Cell], nn.Cell] | None,
        *,
        updates: Sequence[nn.Cell],
        clip_norm: float | None,
        clip_value: float | None,
        accumulate: int,
        restart_state: bool,
        restart_counters: bool,
        keep_rows: bool,
    ) -> None:
        self._network = network
        self._make_optimizer = make_optimizer
        self._train_cell = train_cell or nn.TrainOneStepCell
        self.updates = updates
        # MindSpore's own cell updates at every call, the user's may not
        self._due = (
            Parameter(Tensor(True, mstype.bool_), name="updates.due")
            if updates and (train_cell or accumulate > 1)
            else None
        )
        self._clips = (clip_norm, clip_value)
        self._accumulate = accumulate
        self._told_of_names: set[str] = set()
        self._restart_state = restart_state
        self._restart_counters = restart_counters
        self._known: dict[Hashable, StageCell] = {}
        self._used: dict[Hashable, int] = {}  # the keys of what ran, numbered in that order
        self._numbers = count()
        self._optimizers: dict[Hashable, nn.Cell] = {}
        self._inputs: Sequence[Any] = ()
        self.carry = StateTransfer(keep_rows=keep_rows)
        self.settings: dict[str, Any] = {}
        self._current: StageCell | None = None
        self._ran: StageCell | None = None
        self._last: list[str] | None = None

    @property
    def current(self) -> StageCell:
        """The stage entered last."""
        assert self._current is not None
        return self._current

    def names(self) -> list[list[str]]:
        """List what each stage that ran trains, in the order of first use."""
        used = [tuple(stage.names) for key, stage in self._known.items() if key in self._used]
        return [list(names) for names in dict.fromkeys(used)]

    def compilations(self) -> int:
        """Count the compiled graphs of all stages."""
        return sum(len(stage.inner.compile_cache) for stage in self._known.values())

    @property
    def running(self) -> bool:
        """Whether the stage entered last is the one that ran last."""
        return self._current is not None and self._current is self._ran and self.settled

    def ask(self, settings: dict[str, Any], *, now: bool = True) -> None:
        """Let the optimizer of the next stage be made with other settings."""
        check_keywords(self._make_optimizer, settings)
        if now:
            self.settings = settings

    @property
    def settled(self) -> bool:
        """Whether the optimizer of the stage entered last was made as is asked now."""
        return self._current is not None and self._current.settings == self.settings

    @property
    def number(self) -> int:
        """The place of the stage that runs, in the order of first use."""
        return self._used[self.current.key]

    def enter(self, weights: Sequence[Parameter], around: Hashable, *, runs: bool) -> StageCell:
        """Go to the stage that trains these weights with this behaviour around; all or nothing.

        One that does not run, entered to be looked at, leaves no trace once another is entered.
        """
        key = ((tuple(map(id, weights)), json.dumps(self.settings, sort_keys=True)), around)
        old = self._current
        new = self._known.get(key) or self._make(key, weights)
        if new is not old:
            if old is not None:
                self.carry.leave(old.keeping, ran=old.key in self._used)
            self.carry.enter(new.keeping)
            self._drop_window(new.keeping)
            self._current = new
            if old is not None and old.key not in self._used:
                self._drop(old)
        if runs:
            self.run()
        return new

    def _drop_window(self, state: CellState) -> None:
        """Drop the gradients that another stage has gathered, and say so."""
        calls = state.state.get(f"{GATHERED}_calls")
        count = int(copy_of(calls)) % self._accumulate if calls is not None else 0
        if count:
            for name, value in state.state.items():
                if name.startswith(GATHERED):
                    write(value, ops.zeros_like(value))
            logger.warning(
                "the stage changes within a window: the gradients of %d of %d calls are dropped",
                count,
                self._accumulate,
            )

    def run(self) -> None:
        """Take the stage entered last as the one that runs from now on."""
        self._restart(self.current)
        if self.current.key not in self._used:
            self._used[self.current.key] = next(self._numbers)
        self._ran = self.current
        self._last = self.current.names

    @property
    def trained(self) -> list[str]:
        """The names that the stage trained which ran last."""
        return self.current.names if self._last is None else self._last

    def set_inputs(self, inputs: Sequence[Any]) -> None:
        """Let the graphs of all stages take inputs of these shapes."""
        self._inputs = inputs
        for stage in self._known.values():
            stage.inner.set_inputs(*inputs)

    def forget(self, state: Collection[str]) -> None:
        """Forget stages other than the present that have state which a save lacks.

        They begin anew if they come again.
        """
        for stage in [s for s in self._known.values() if s is not self._current]:
            if not {n for n, owner in stage.keeping.owners.items() if owner} <= set(state):
                del self._known[stage.key]
                self._used.pop(stage.key, None)
                if stage.optimizer is not self.current.optimizer:
                    self._optimizers.pop(stage.key[0], None)

        own = self.current
        lost = [n for n, owner in own.keeping.owners.items() if owner and n not in state]
        if lost:
            # only a new optimizer says what its state begins with
            fresh = self._made_of(list(own.optimizer.parameters))
            first = first_values(fresh, self._network, slots=True)
            for name in lost:
                value = own.keeping.state[name]
                write(value, first.get(name, np.zeros(value.shape, np.float32)))

    def resume(self, trained: list[str]) -> None:
        """Go on behind a stage that a save says ran last, since the state comes from its file."""
        self._ran, self._last = None, trained

    def _restart(self, new: StageCell) -> None:
        """Begin anew what the user wants to, where another stage ran last."""
        if self._last is None or self._last == new.names:
            return
        joined = [name for name in new.names if name not in set(self._last)]
        if self._restart_state and joined:
            new.keeping.restart_state(joined)
        if self._restart_counters:
            new.keeping.restart_counters()

    def _drop(self, stage: StageCell) -> None:
        """Forget a stage that never ran: the first one, made before the reach was known."""
        del self._known[stage.key]
        if not any(other.optimizer is stage.optimizer for other in self._known.values()):
            del self._optimizers[stage.key[0]]
            self.carry.forget(stage.keeping, self._states())

    def _make(self, key: tuple[Hashable, Hashable], weights: Sequence[Parameter]) -> StageCell:
        if self._used:
            check_change(self._network)
        check_stage(self._network, weights)
        optimizer = self._optimizers.get(key[0])
        if optimizer is None:
            optimizer = self._made_of(list(weights))
            _check_optimizer(optimizer, weights)
            check_optimizer(optimizer)
            self.carry.meet(optimizer, share="lr" not in self.settings)
            first = first_values(optimizer, self._network, slots=self._restart_state)
            share_slots(optimizer, self._network, self._states())
        else:
            first = self._first(optimizer)
        inner = self._make_inner(optimizer)
        keeping = CellState(inner, optimizer, self._network, first)
        keeping.own_rate = "lr" in self.settings
        names = [p.name for p in weights]
        stage = StageCell(key, names, optimizer, inner, keeping, self.settings)
        self._optimizers[key[0]] = optimizer
        self._known[key] = stage
        return stage

    @contextmanager
    def _names_kept(self, maker: str, *cells: nn.Cell) -> Iterator[None]:
        """Put the names of parameters back that a cell made in a block gives its own prefix.

        By name go the state of the next stage, the patterns of a schedule, and every file.
        """
        before = {id(p): (p, str(p.name)) for cell in cells for p in cell.get_parameters()}
        yield
        renamed = [(p, old, str(p.name)) for p, old in before.values() if p.name != old]
        for parameter, old, _ in renamed:
            parameter.name = old
        if renamed and maker not in self._told_of_names:
            self._told_of_names.add(maker)
            _, old, new = renamed[0]
            logger.warning(
                "%s renamed %d parameters, such as %s to %s, which have their names back; give the "
                "__init__ of its base class auto_prefix=False",
                maker,
                len(renamed),
                old,
                new,
            )

    def _made_of(self, weights: list[Parameter]) -> nn.Cell:
        try:
            with self._names_kept("optimizer", self._network):
                return as_one(made_with(self._make_optimizer, weights, self.settings))
        except TypeError as error:
            # the classes of MindSpore hide what they take
            if not isinstance(self._make_optimizer, type):
                raise
            name = self._make_optimizer.__name__
            raise ArgumentTypeError(
                f"optimizer {name} cannot be made of the parameters alone ({error}); give a "
                f"function that does: lambda p: {name}(p, ...)"
            ) from error

    def _first(self, optimizer: nn.Cell) -> dict[str, np.ndarray]:
        """Return the first values of an optimizer that another stage has too."""
        known = self._known.values()
        return next(s.keeping.first for s in known if s.optimizer is optimizer)

    def _states(self) -> dict[str, Parameter]:
        """Return the state of all known stages by name, but for that of exchanged weights."""
        there = {id(p) for p in self._network.get_parameters()}
        return {
            name: p
            for keeping in (stage.keeping for stage in self._known.values())
            for name, p in keeping.state.items()
            if (owner := keeping.owners[name]) is None or id(keeping.weights[owner]) in there
        }

    def _make_inner(self, optimizer: nn.Cell) -> nn.Cell:
        if self._clips != (None, None):
            optimizer = ClippedOptimizer(optimizer, *self._clips)
        if self.updates:
            optimizer = UpdatingOptimizer(optimizer, self.updates, self._due)
        if self._accumulate > 1:
            optimizer = AccumulatingOptimizer(optimizer, self._accumulate)
        before = _children(self._network)
        with self._names_kept("train_cell", self._network, optimizer):
            inner = self._train_cell(guarded(self._network), optimizer)
        if not isinstance(inner, nn.Cell):
            raise ArgumentTypeError(
                f"train_cell returned a {type(inner).__name__}; return a Cell that does one step"
            )
        check_train_cell(inner, self._network)
        _check_order(inner, optimizer)
        _check_replaced(before, _children(self._network))
        inner.add_flags(training=self._network.training)
        if any(update.when == "before_forward" for update in self.updates):
            inner = UpdatingStep(inner, self.updates, self._due)
        if self._inputs:
            inner.set_inputs(*self._inputs)
        return inner


def _children(network: nn.Cell) -> dict[tuple[int, str], nn.Cell]:
    return {
        (id(cell), name): child
        for cell in every_cell(network)
        for name, child in cell._cells.items()
        if child is not None
    }


def _check_replaced(
    before: dict[tuple[int, str], nn.Cell], after: dict[tuple[int, str], nn.Cell]
) -> None:
    """Refuse a train cell that exchanges cells of the network: each stage would do so again."""
    replaced = [(old, after.get(place)) for place, old in before.items()]
    replaced = [(old, new) for old, new in replaced if new is not old]
    if replaced:
        old, new = (type(cell).__name__ for cell in replaced[0])
        raise ArgumentError(
            f"train_cell put {new} in the place of {old} in the network, and would do so again in "
            "each stage; make the network anew and cast it before it goes into the step: "
            "mindspore.amp.auto_mixed_precision(net, 'O2')"
        )


def _check_order(inner: nn.Cell, optimizer: nn.Cell) -> None:
    """Refuse a train cell whose gradients would be taken for those of other weights."""
    wrong = misordered(inner, optimizer)
    if wrong:
        raise ArgumentError(
            f"train cell {type(inner).__name__} takes gradients in another order or number than "
            f"the optimizer's parameters, such as that of {wrong[0]!r}; differentiate by "
            "optimizer.parameters"
        )


def _check_optimizer(optimizer: Any, weights: Sequence[Parameter]) -> None:
    if not isinstance(optimizer, nn.Cell) or not hasattr(optimizer, "parameters"):
        raise ArgumentTypeError(
            f"optimizer returned a {type(optimizer).__name__}; return an optimizer of MindSpore"
        )
    if {id(p) for p in optimizer.parameters} != {id(p) for p in weights}:
        given, got = [p.name for p in weights], [p.name for p in optimizer.parameters]
        raise ArgumentError(
            "optimizer holds other parameters than it was given; pass the given list on\n"
            f"given: {_list(given)}\nholds: {_list(got)}"
        )


def _list(names: Sequence[str]) -> str:
    return f"{len(names)}: " + ", ".join(names[:6]) + (" …" if len(names) > 6 else "")
