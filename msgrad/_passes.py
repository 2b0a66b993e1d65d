"""A pass of rules over weights: one small graph per rule, mapped over its weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad._rules import Rule

_NARROW = (mstype.float16, mstype.bfloat16)


@dataclass(frozen=True)
class Work:
    """One rule and all that it changes.

    Attributes:
        label: How the rule is named in messages.
        place: Its position among the rules, overruled ones included.
        rule: The function of a weight.
        weights: What it changes, in network order.
        beside: What goes into the rule beside each weight, one sequence per kind.
        owned: Those of them that the update owns and saves.
        takes_step: Whether the rule also wants the step number.
    """

    label: str
    place: int
    rule: Rule
    weights: tuple[Parameter, ...]
    beside: tuple[tuple[Tensor, ...], ...] = ()
    owned: tuple[Parameter, ...] = field(default=())
    takes_step: bool = False

    def at(self, places: Iterable[int]) -> Work:
        """Return the same rule over some of the weights only."""
        chosen = list(places)
        return Work(
            self.label,
            self.place,
            self.rule,
            tuple(self.weights[i] for i in chosen),
            tuple(tuple(kind[i] for i in chosen) for kind in self.beside),
            self.owned,
            self.takes_step,
        )

    @property
    def state(self) -> list[Parameter]:
        """All that the rule may change beside the weights."""
        own = list(self.rule.get_parameters()) if isinstance(self.rule, nn.Cell) else []
        return own + list(self.owned)


class Group(nn.Cell):
    """The graph of one rule: `one` is what is done with each weight.

    The weights stay out of every list of names, so that they remain the network's.
    """

    def __init__(self, work: Work) -> None:
        super().__init__(auto_prefix=False)
        if isinstance(work.rule, nn.Cell):
            self.rule = work.rule
        else:
            self.__dict__["rule"] = work.rule
        self.__dict__["weights"] = work.weights
        self.__dict__["beside"] = work.beside
        self.takes_step = work.takes_step
        # Not a loop: unrolled, 1,000 weights exceed the call depth of the graph compiler.
        self.map = ops.HyperMap()

    def new(self, step: Tensor, w: Parameter, *beside: Tensor) -> Tensor:
        """Return what the rule makes of one weight."""
        if self.takes_step:
            return self.rule(w, *beside, step)
        return self.rule(w, *beside)

    def construct(self, step: Tensor) -> tuple[Any, ...]:
        return self.map(ops.partial(self.one, step), self.weights, *self.beside)


class Write(Group):
    """Write the new values."""

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> Tensor:
        return ops.assign(w, self.new(step, w, *beside))


class Values(Group):
    """Return the new values."""

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> Tensor:
        return self.new(step, w, *beside)


class Sums(Group):
    """Return the sum of the new values: not finite where one of them is not.

    A sum has one reader of the new values; with a second one (`isfinite`, `min` and `max`) the graph keeps the
    new values of all weights at once.
    """

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> Tensor:
        new = self.new(step, w, *beside)
        if new.dtype in _NARROW:
            new = ops.cast(new, mstype.float32)
        return new.sum()


class Shapes(Group):
    """Return shape and dtype of the new values, found when the graph is compiled."""

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> tuple[Any, Any]:
        new = self.new(step, w, *beside)
        if isinstance(new, Tensor):
            return new.shape, new.dtype
        return (), None


class Pass(nn.Cell):
    """Several groups in one graph; returns what they return, one after the other."""

    def __init__(self, kind: type[Group], works: Sequence[Work], step: Tensor) -> None:
        super().__init__(auto_prefix=False)
        self.groups = nn.CellList([kind(work) for work in works], auto_prefix=False)
        self.step = step

    def construct(self) -> tuple[Any, ...]:
        found = ()
        for group in self.groups:
            found = found + group(self.step)
        return found
