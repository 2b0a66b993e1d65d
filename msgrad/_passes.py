"""A pass of rules over weights: one small graph per rule, mapped over its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad._mode import running_in
from msgrad._work import Work

_NARROW = (mstype.float16, mstype.bfloat16)
# A graph for Ascend that returns a dtype does not run: it returns the place of one in this list.
_DTYPES = (
    *(mstype.float16, mstype.bfloat16, mstype.float32, mstype.float64),
    *(mstype.int8, mstype.int16, mstype.int32, mstype.int64),
    *(mstype.uint8, mstype.uint16, mstype.uint32, mstype.uint64),
    *(mstype.bool_, mstype.complex64, mstype.complex128),
)
_NO_TENSOR = -1


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
    """Write the new values.

    What `assign` returns must not leave the graph: each would be a copy of its weight.
    """

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> bool:
        """Change one weight."""
        ops.assign(w, self.new(step, w, *beside))
        return True


class Values(Group):
    """Return the new values."""

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> Tensor:
        """Return one new value."""
        return self.new(step, w, *beside)


class Sums(Group):
    """Return the sum of the new values: not finite where one of them is not.

    A sum has one reader of the new values; with a second one (`isfinite`, `min` and `max`) the
    graph keeps the new values of all weights at once.
    """

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> Tensor:
        """Return one sum."""
        new = self.new(step, w, *beside)
        if new.dtype in _NARROW:
            new = ops.cast(new, mstype.float32)
        if new.ndim > 1:
            # Row by row first: over all axes at once it takes the CPU ten times as long.
            new = new.sum(-1)
        return new.sum()


class Shapes(Group):
    """Return shape and dtype of the new values, found when the graph is compiled."""

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> tuple[Any, ...]:
        """Return one shape and number of a dtype, see `dtype_of`."""
        new = self.new(step, w, *beside)
        if isinstance(new, Tensor):
            return new.shape, self.number(new.dtype)
        return (), _NO_TENSOR

    def number(self, dtype: Any) -> int:
        """Return the place of a dtype in the list."""
        for place in range(len(_DTYPES)):
            if dtype == _DTYPES[place]:
                return place
        return _NO_TENSOR


class Whole(Shapes):
    """Also return a number that needs all of the new values, so that the rule really runs."""

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> tuple[Any, ...]:
        """Return shape, number of the dtype, and sum of one."""
        new = self.new(step, w, *beside)
        if isinstance(new, Tensor):
            return new.shape, self.number(new.dtype), ops.cast(new, mstype.float32).sum()
        return (), _NO_TENSOR, 0


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


def dtype_of(number: int) -> Any:
    """Return the dtype of a number that `Shapes` gave; None where the rule gave no Tensor."""
    return None if number == _NO_TENSOR else _DTYPES[number]


def run(kind: type[Group], works: Sequence[Work], step: Tensor) -> tuple[Any, ...]:
    """Compile a pass and run it once."""
    with running_in(ms.GRAPH_MODE):
        return Pass(kind, works, step)()
