"""What goes along when a stage brings a new optimizer: state by name, and changed rates."""

from __future__ import annotations

import gc
import logging
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn

from msgrad._text import few
from msgrad.errors import ArgumentError
from msgrad.network import copy_of, every_cell, write
from msgrad.optim import own_parameters, owner_of, parts_of, rates_of, replace_parameters

logger = logging.getLogger("msgrad")
_HOLDS = ("hold_mask.", "hold_flag.")


class CellState:
    """The state of one inner train cell: all that is not the network's.

    Raises:
        ArgumentError: Two states have one name, or one has that of a weight.
    """

    def __init__(
        self, inner: nn.Cell, optimizer: nn.Cell, network: nn.Cell, first: dict[str, np.ndarray]
    ) -> None:
        self.optimizer, self.first = optimizer, first
        self.rates = rates_of(optimizer)
        self.weights = {str(p.name): p for p in network.get_parameters()}
        self.is_new, self.own_rate = True, False
        names = self.weights.keys()
        own = _own_state(inner, optimizer, network)
        self.state: dict[str, Parameter] = {p.name: p for p in own}
        if len(self.state) < len(own):
            twice = next(p.name for p in own if self.state[p.name] is not p)
            raise ArgumentError(
                f"train cell and optimizer each have a state named {twice!r}, of which only one "
                "could go along to a later stage; give clone another prefix"
            )
        taken = next((name for name in self.state if name in names), None)
        if taken is not None:
            # MindSpore would rename both when it compiles the step
            raise ArgumentError(
                f"train cell or optimizer has a state named {taken!r}, which is the name of a "
                "weight; give clone a prefix, or the parameter another name"
            )
        self.owners = {name: owner_of(name, names) for name in self.state}

    def restart_counters(self) -> None:
        """Put the shared counters back to where the optimizer began."""
        for name, first in self.first.items():
            # the schedule of a rate reads global_step: it continues
            if self.owners[name] is None and name != "global_step":
                write(self.state[name], first)

    def restart_state(self, weights: Collection[str]) -> None:
        """Put the slots of some weights back to where the optimizer began."""
        for name, first in self.first.items():
            # whether a weight is held is the user's decision, not state of the optimizer
            if self.owners[name] in weights and not name.startswith(_HOLDS):
                write(self.state[name], first)


def first_values(optimizer: nn.Cell, network: nn.Cell, *, slots: bool) -> dict[str, np.ndarray]:
    """Copy what an optimizer begins with; its slots, as large as the weights, where asked for."""
    names = {p.name for p in network.get_parameters()}
    state = _own_state(optimizer, optimizer, network)
    return {p.name: copy_of(p) for p in state if slots or owner_of(p.name, names) is None}


def share_slots(optimizer: nn.Cell, network: nn.Cell, known: Mapping[str, Parameter]) -> None:
    """Let a new optimizer keep its slots in the Parameters in which other stages keep them.

    Each stage would otherwise hold slots of its own, and copy them whenever it is entered. An
    optimizer of the user's own may also have them where nobody can exchange them, such as in a
    closure, and is left as it is.
    """
    if not all(_of_mindspore(part) for part in every_cell(optimizer)):
        return
    names = {p.name for p in network.get_parameters()}
    shared = {
        id(p): known[p.name]
        for p in _own_state(optimizer, optimizer, network)
        if p.name in known and _fits(known[p.name], p) and not p.name.startswith(_HOLDS)
        if owner_of(p.name, names) is not None
    }
    replace_parameters(optimizer, shared)


def _of_mindspore(part: nn.Cell) -> bool:
    schedules = isinstance(part, nn.learning_rate_schedule.LearningRateSchedule)
    return schedules or type(part).__module__.partition(".")[0] in ("mindspore", "msgrad")


def _own_state(cell: nn.Cell, optimizer: nn.Cell, network: nn.Cell) -> list[Parameter]:
    rates = {id(r) for r in rates_of(optimizer).values()}
    own = own_parameters(cell, network.get_parameters(), around=network)
    return [p for p in own if id(p) not in rates]


class StateTransfer:
    """The latest value of every state of any stage, and of every weight's learning rate.

    Where the optimizer of a stage is made with another rate or constant (a momentum) than the one
    before, the stage asks for it, and what the one before came to does not go along.
    """

    def __init__(self, *, keep_rows: bool = False) -> None:
        self.latest: dict[str, Parameter] = {}
        self._served: dict[str, Parameter] = {}  # the weight that a latest state belongs to
        self._keep_rows = keep_rows
        self._constants: dict[str, np.ndarray] = {}
        # the weights of the stage entered last stand last
        self._rates: dict[str, Parameter] = {}
        self._first_rates: dict[int, tuple[Parameter, np.ndarray]] = {}
        self._entered: dict[int, np.ndarray] = {}
        self._groups: list[dict[str, Any]] = []  # of all optimizers of `mindspore.experimental`
        self._grouped: list[nn.Cell] = []
        self._followers: list[Parameter] = []
        self._followed: dict[int, float] = {}  # the driving rate that a follower saw last

    def meet(self, optimizer: nn.Cell, *, share: bool = True) -> None:
        """Note the rates of a new optimizer, and share the Parameters that a scheduler may drive.

        A scheduler of `mindspore.experimental` writes into the groups of the one optimizer it was
        made for.
        """
        for rate in rates_of(optimizer).values():
            self._first_rates.setdefault(id(rate), (rate, copy_of(rate)))
        for part in parts_of(optimizer):
            self._meet_groups(part, share=share)

    def _meet_groups(self, optimizer: nn.Cell, *, share: bool) -> None:
        groups: list[dict[str, Any]] = getattr(optimizer, "param_groups", None) or []
        for number, group in enumerate(groups):
            known = self._latest_rate([p.name for p in group["params"]]) if share else None
            if known is not None and np.array_equal(self._first(known), self._first(group["lr"])):
                group["lr"] = optimizer.lrs[number] = known
        # a graph refuses two that are numbered alike, by the optimizers that they come from
        each = {id(rate): rate for rate in rates_of(optimizer).values()}
        for rate in each.values() if groups else ():
            if sum(rate.name == other.name for other in each.values()) > 1:
                rate.name = f"{rate.name}.{len(self._first_rates)}"
        self._groups += groups
        self._grouped += [optimizer] if groups else []

    def _mark_driven(self) -> None:
        """Mark the groups of a scheduler that does not, which only refers to its optimizer."""
        for optimizer in self._grouped[:-1]:
            referring = gc.get_referrers(optimizer)
            if any("_last_lr" in (r if type(r) is dict else _attributes(r)) for r in referring):
                for group in optimizer.param_groups:
                    group.setdefault("initial_lr", Tensor(self._first(group["lr"])))

    def _driver(self) -> tuple[Parameter, float] | None:
        """Return a rate that a scheduler drives, and what it began with.

        A scheduler writes ``initial_lr`` into the groups of its optimizer, and drives no others.
        """
        group = next((g for g in self._groups if "initial_lr" in g), None)
        return None if group is None else (group["lr"], float(group["initial_lr"]))

    def follow(self) -> None:
        """Take rates of groups that joined later along with what a scheduler drives."""
        if not self._followers or (driver := self._driver()) is None:
            return
        now, began = float(copy_of(driver[0])), driver[1]
        for rate in self._followers:
            seen = self._followed.get(id(rate), began)
            if now != seen:
                base = copy_of(rate) / seen if seen else self._first(rate) / began
                write(rate, base * np.float32(now))
                self._followed[id(rate)] = now

    def settle(self) -> None:
        """Take the rates as they are for those that go with the scheduler from now on."""
        if (driver := self._driver()) is not None:
            now = float(copy_of(driver[0]))
            self._followed.update({id(rate): now for rate in self._rates.values()})

    def _first(self, rate: Parameter) -> np.ndarray:
        return self._first_rates[id(rate)][1]

    def leave(self, old: CellState, *, ran: bool) -> None:
        """Remember the state of a stage; its values stay where they are until it is entered.

        What a stage that never ran has, by a checkpoint loaded into it, is written to where it
        was remembered, so that the stage itself can be forgotten.
        """
        self._constants.update(old.first)
        for name, parameter in old.state.items():
            earlier = self.latest.get(name)
            if ran or earlier is None or not self._same_weight(old, name):
                self.latest[name] = parameter
                if (owner := old.owners[name]) is not None:
                    self._served[name] = old.weights[owner]
            else:
                _copy(earlier, parameter)

    def forget(self, old: CellState, known: Mapping[str, Parameter]) -> None:
        """Let go of the state of a stage that never ran.

        Kept is what known stages share, and what a hold or a checkpoint wrote into it.
        """
        own = {id(p) for p in old.state.values() if not copy_of(p).any()}
        own -= {id(p) for p in known.values()}
        self.latest = {name: p for name, p in self.latest.items() if id(p) not in own}

    def enter(self, new: CellState) -> None:
        """Write what is remembered into a stage."""
        for name, parameter in new.state.items():
            if name not in self.latest or not self._same_constant(new, name):
                continue
            if self._same_weight(new, name):
                _copy(parameter, self.latest[name])
            elif self._keep_rows and new.is_new:
                _copy_rows(parameter, self.latest[name])
        new.is_new = False
        self._carry_rates(new)
        for name, rate in new.rates.items():
            self._rates.pop(name, None)
            self._rates[name] = rate
        each = {id(rate): rate for rate in new.rates.values()}
        self._mark_driven()
        driven = {id(group["lr"]) for group in self._groups if "initial_lr" in group}
        grouped = {id(group["lr"]) for group in self._groups} if driven else set()
        self._followers = [each[key] for key in (grouped - driven) & each.keys()]
        self.follow()
        self._entered.update({key: copy_of(rate) for key, rate in each.items()})

    def _same_constant(self, new: CellState, name: str) -> bool:
        """Say whether a state that no weight owns begins in a stage as in the one before."""
        if new.owners[name] is not None or not {name} <= new.first.keys() & self._constants.keys():
            return True
        return np.array_equal(new.first[name], self._constants[name])

    def _same_weight(self, stage: CellState, name: str) -> bool:
        """Say whether the weight of a state is the one that it served last, not an exchanged one.

        A hold goes by the name.
        """
        served = self._served.get(name)
        return (
            served is None
            or name.startswith(_HOLDS)
            or served is stage.weights.get(stage.owners[name] or "")
        )

    def rates_made(self) -> dict[str, tuple[Parameter, np.ndarray]]:
        """Return of each weight, in the order of use, its rate and what that was made with."""
        self.follow()
        return {name: (rate, self._first(rate)) for name, rate in self._rates.items()}

    def take_rates(self, rates: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """Take rates of a save for those that served last, as `rates_made` returned them."""
        for name, (value, first) in rates.items():
            rate = self._rates.pop(name, None)
            if rate is not None and np.array_equal(self._first(rate), copy_of(first)):
                # a scheduler may drive it
                write(rate, value)
            else:
                rate = Parameter(value, name=f"rate.{name}", requires_grad=False)
                self._first_rates[id(rate)] = (rate, copy_of(first))
            self._entered[id(rate)] = copy_of(first)
            self._rates[name] = rate

    def take(self, state: Mapping[str, Parameter]) -> None:
        """Take the state of a save, and none that came before."""
        self.latest, self._served = dict(state), {}

    def _latest_rate(self, names: Collection[str]) -> Parameter | None:
        """Return the rate that served any of these weights last."""
        served = set(names)
        return next((self._rates[n] for n in reversed(self._rates) if n in served), None)

    def _carry_rates(self, new: CellState) -> None:
        """Take along rates that were changed while training, by the weights they serve.

        By number would be wrong: the groups after one that vanishes move up.
        """
        served: dict[int, tuple[Parameter, list[str]]] = {}
        for name, rate in new.rates.items():
            served.setdefault(id(rate), (rate, []))[1].append(name)
        for rate, names in () if new.own_rate else served.values():
            source = self._latest_rate(names)
            if source is None or source is rate or not self._changed(source):
                continue
            if np.array_equal(self._first(source), self._first(rate)):
                _copy(rate, source)
                if id(source) in self._followed:
                    self._followed[id(rate)] = self._followed[id(source)]
                _tell_of_rate(names, rate, self._first(rate))

    def _changed(self, rate: Parameter) -> bool:
        """Say whether a rate is another than its stage began with, or than it was made with."""
        now = copy_of(rate)
        return not (
            np.array_equal(now, self._first(rate)) and np.array_equal(now, self._entered[id(rate)])
        )


def _attributes(thing: object) -> dict[str, Any]:
    return getattr(thing, "__dict__", {})


def _tell_of_rate(names: Collection[str], rate: Parameter, first: np.ndarray) -> None:
    if not rate.ndim:
        logger.warning(
            "the rate of %s goes on at %.7g, as it was set; the optimizer was made with %.7g",
            few(list(names)),
            copy_of(rate),
            first,
        )


def _copy(parameter: Parameter, source: Parameter) -> None:
    if source is not parameter and _fits(source, parameter):
        write(parameter, source)


def _copy_rows(parameter: Parameter, source: Parameter) -> None:
    """Copy what two states of the same rank have in common along each axis."""
    if len(source.shape) == len(parameter.shape):
        both = tuple(slice(min(sizes)) for sizes in zip(source.shape, parameter.shape, strict=True))
        values = copy_of(parameter)
        values[both] = copy_of(source)[both]
        write(parameter, values)


def _fits(source: Parameter, parameter: Parameter) -> bool:
    return source.shape == parameter.shape and source.dtype == parameter.dtype
