"""What goes along when a stage brings a new optimizer: state by name, and changed rates."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from mindspore import Parameter, nn

from msgrad._slots import own_parameters, owner_of, rates_of
from msgrad._weights import copy_of, write


class Keeping:
    """The state of one inner train cell: all that is not the network's."""

    def __init__(
        self, inner: nn.Cell, optimizer: nn.Cell, network: nn.Cell, *, slots: bool
    ) -> None:
        self.optimizer = optimizer
        self.rates = rates_of(optimizer)
        rates = {id(r) for r in self.rates.values()}
        weights = list(network.get_parameters())
        names = {p.name for p in weights}
        own = [p for p in own_parameters(inner, weights) if id(p) not in rates]
        self.state: dict[str, Parameter] = {p.name: p for p in own}
        self.owners = {name: owner_of(name, names) for name in self.state}
        counted = {id(p) for p in own_parameters(optimizer, weights)}
        self._first = {
            name: copy_of(p)
            for name, p in self.state.items()
            # the first values of slots take memory as large as the weights
            if id(p) in counted and (slots or self.owners[name] is None)
        }

    def restart_counters(self) -> None:
        """Put the shared counters back to where the optimizer began."""
        for name, first in self._first.items():
            # the schedule of a rate reads global_step: it continues
            if self.owners[name] is None and name != "global_step":
                write(self.state[name], first)

    def restart_state(self, weights: Collection[str]) -> None:
        """Put the slots of some weights back to where the optimizer began."""
        for name, first in self._first.items():
            if self.owners[name] in weights:
                write(self.state[name], first)


class Carry:
    """The latest value of every state of any stage, and the first of every learning rate."""

    def __init__(self) -> None:
        self.latest: dict[str, Parameter] = {}
        self._first_rates: dict[int, tuple[Parameter, np.ndarray]] = {}

    def meet(self, optimizer: nn.Cell, old: Keeping | None) -> None:
        """Note the rates of a new optimizer, and share the Parameters that a scheduler may drive.

        A scheduler of `mindspore.experimental` writes into the groups of the one optimizer it was
        made for.
        """
        rates = rates_of(optimizer)
        for rate in rates.values():
            self._first_rates.setdefault(id(rate), (rate, copy_of(rate)))
        for number, group in enumerate(getattr(optimizer, "param_groups", None) or ()):
            source = old.rates.get(group["params"][0].name) if old is not None else None
            if source is not None and np.array_equal(self._first(source), self._first(group["lr"])):
                group["lr"] = optimizer.lrs[number] = source

    def _first(self, rate: Parameter) -> np.ndarray:
        return self._first_rates[id(rate)][1]

    def leave(self, old: Keeping) -> None:
        """Remember the state of a stage; its values stay where they are until it is entered."""
        self.latest.update(old.state)

    def forget(self, old: Keeping) -> None:
        """Let go of the state of a stage that never ran."""
        own = {id(p) for p in old.state.values()}
        self.latest = {name: p for name, p in self.latest.items() if id(p) not in own}

    def enter(self, new: Keeping, old: Keeping | None, *, fresh: Collection[str] = ()) -> None:
        """Write what is remembered into a stage; slots of the weights in `fresh` are left alone."""
        for name, parameter in new.state.items():
            source = self.latest.get(name)
            if source is None or source is parameter or new.owners[name] in fresh:
                continue
            if source.shape == parameter.shape and source.dtype == parameter.dtype:
                write(parameter, source)
        if old is not None and old is not new:
            self._carry_rates(new, old)

    def _carry_rates(self, new: Keeping, old: Keeping) -> None:
        """Take along rates that were changed while training, by the weights they serve.

        By number would be wrong: the groups after one that vanishes move up.
        """
        done: set[int] = set()
        for name, rate in new.rates.items():
            source = old.rates.get(name)
            if source is None or id(rate) in done or source is rate:
                continue
            done.add(id(rate))
            changed = not np.array_equal(copy_of(source), self._first(source))
            if changed and source.shape == rate.shape:
                write(rate, source)
