"""The trial of rules: compiled alone, on one weight of each kind, before anything changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.backend import computes, running_in
from msgrad.errors import ArgumentError, ArgumentTypeError, ConflictError, ShapeError
from msgrad.network import bits, copy_of, silence, write
from msgrad.updates._bound_rule import BoundRule
from msgrad.updates._readable import check_readable

_NARROW = (mstype.float16, mstype.bfloat16)
# A graph for Ascend that returns a dtype does not run: it returns the place of one in this list.
_DTYPES = (
    *(mstype.float16, mstype.bfloat16, mstype.float32, mstype.float64),
    *(mstype.int8, mstype.int16, mstype.int32, mstype.int64),
    *(mstype.uint8, mstype.uint16, mstype.uint32, mstype.uint64),
    *(mstype.bool_, mstype.complex64, mstype.complex128),
)
_NO_TENSOR = -1


class RuleGraph(nn.Cell):
    """The graph of one rule: `one` is what is done with each weight.

    The weights stay out of every list of names, so that they remain the network's.
    """

    def __init__(self, bound: BoundRule) -> None:
        super().__init__(auto_prefix=False)
        if isinstance(bound.rule, nn.Cell):
            self.rule = bound.rule
        else:
            self.__dict__["rule"] = bound.rule
        self.__dict__["weights"] = bound.weights
        self.__dict__["beside"] = bound.beside
        self.takes_step = bound.takes_step
        # Not a loop: unrolled, 1,000 weights exceed the call depth of the graph compiler.
        self.map = ops.HyperMap()

    def new(self, step: Tensor, w: Parameter, *beside: Tensor) -> Tensor:
        """Return what the rule makes of one weight."""
        if self.takes_step:
            return self.rule(w, *beside, step)
        return self.rule(w, *beside)

    def construct(self, step: Tensor) -> tuple[Any, ...]:
        return self.map(ops.partial(self.one, step), self.weights, *self.beside)


class WriteGraph(RuleGraph):
    """Write the new values.

    What `assign` returns must not leave the graph: each would be a copy of its weight.
    """

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> bool:
        """Change one weight."""
        ops.assign(w, self.new(step, w, *beside))
        return True


class ValueGraph(RuleGraph):
    """Return the new values."""

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> Tensor:
        """Return one new value."""
        return self.new(step, w, *beside)


class SumGraph(RuleGraph):
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


class ShapeGraph(RuleGraph):
    """Return shape and dtype of the new values, found when the graph is compiled."""

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> tuple[Any, ...]:
        """Return one shape and number of a dtype, see `dtype_of`."""
        new = self.new(step, w, *beside)
        if isinstance(new, Tensor):
            return new.shape, self.number(new.dtype)
        return (), _NO_TENSOR

    def number(self, dtype: Any) -> int:
        """Return the place of a dtype in the list."""
        for position in range(len(_DTYPES)):
            if dtype == _DTYPES[position]:
                return position
        return _NO_TENSOR


class RunGraph(ShapeGraph):
    """Also return a number that needs all of the new values, so that the rule really runs."""

    def one(self, step: Tensor, w: Parameter, *beside: Tensor) -> tuple[Any, ...]:
        """Return shape, number of the dtype, and sum of one."""
        new = self.new(step, w, *beside)
        if isinstance(new, Tensor):
            return new.shape, self.number(new.dtype), ops.cast(new, mstype.float32).sum()
        return (), _NO_TENSOR, 0


class RuleGraphs(nn.Cell):
    """Several groups in one graph; returns what they return, one after the other."""

    def __init__(
        self, kind: type[RuleGraph], bound_rules: Sequence[BoundRule], step: Tensor
    ) -> None:
        super().__init__(auto_prefix=False)
        self.groups = nn.CellList([kind(bound) for bound in bound_rules], auto_prefix=False)
        self.step = step

    def construct(self) -> tuple[Any, ...]:
        found = ()
        for group in self.groups:
            found = found + group(self.step)
        return found


def dtype_of(number: int) -> Any:
    """Return the dtype of a number that `ShapeGraph` gave; None where the rule gave no Tensor."""
    return None if number == _NO_TENSOR else _DTYPES[number]


def run(kind: type[RuleGraph], bound_rules: Sequence[BoundRule], step: Tensor) -> tuple[Any, ...]:
    """Compile a pass and run it once."""
    with running_in(ms.GRAPH_MODE):
        return RuleGraphs(kind, bound_rules, step)()


_SMALL = 4


def try_rules(bound_rules: Sequence[BoundRule], step: Tensor, remedy: str) -> None:
    """Refuse rules that do not compile, change their input or return something else than a weight.

    Args:
        bound_rules: The rules and their weights.
        step: A step number to compile with.
        remedy: What to do about a rule that does not compile.

    Raises:
        ArgumentError: A rule cannot be compiled, or changes its input in place.
        ArgumentTypeError: A rule returns no Tensor.
        ConflictError: Two parameters that would stand in one graph have one name.
        ShapeError: A rule returns another shape or dtype than the weight's.
    """
    for bound in bound_rules:
        check_readable(bound.label, bound.rule, remedy)
    check_names(bound_rules)
    kept = keep_states(bound_rules)
    try:
        _try_in_place(bound_rules, step, remedy)
        samples = [bound.at(_one_of_each(bound.weights)) for bound in bound_rules]
        _check_returned(samples, _run(ShapeGraph, samples, step, remedy))
    finally:
        put_back(kept)


def _try_in_place(bound_rules: Sequence[BoundRule], step: Tensor, remedy: str) -> None:
    """Run each rule on a stand-in, and see whether that changes."""
    # what stands beside a weight has its shape
    small = [_stand_in(bound, None if bound.beside else _SMALL) for bound in bound_rules]
    try:
        with silence():
            run(RunGraph, small, step)
    except Exception:
        # A rule may need the shape of its weight.
        small = [_stand_in(bound, None) for bound in bound_rules]
        _check_returned(small, _run(RunGraph, small, step, remedy))
    for bound in small if computes() else ():
        stand_in = bound.weights[0]
        untouched = copy_of(_values(stand_in.shape, stand_in.dtype))
        if (bits(copy_of(stand_in)) != bits(untouched)).any():
            raise ArgumentError(
                f"rule {bound.label} changes its input in place; return a new tensor, "
                "as in w = w * 0.5 for w *= 0.5"
            )


def _stand_in(bound: BoundRule, longest: int | None) -> BoundRule:
    """Put another parameter in the place of the smallest weight, each axis at most so long."""
    smallest = min(range(len(bound.weights)), key=lambda position: bound.weights[position].size)
    weight = bound.weights[smallest]
    shape = tuple(size if longest is None else min(size, longest) for size in weight.shape)
    stand_in = Parameter(_values(shape, weight.dtype), name=str(weight.name))
    return replace(bound.at([smallest]), weights=(stand_in,))


def _values(shape: tuple[int, ...], dtype: Any) -> Tensor:
    """Return numbers that clipping, scaling and a sign change would all change."""
    return Tensor(np.linspace(-97.3, 101.7, math.prod(shape)).reshape(shape), dtype)


def _run(
    kind: type[RuleGraph], samples: list[BoundRule], step: Tensor, remedy: str
) -> tuple[Any, ...]:
    try:
        with silence():
            return run(kind, samples, step)
    except Exception as error:
        if len(samples) == 1:
            reason = str(error).strip().partition("\n")[0]
            raise ArgumentError(
                f"rule {samples[0].label} cannot be compiled ({reason}); {remedy}"
            ) from error
    # The message did not say which rule it was.
    return tuple(found for one in samples for found in _run(kind, [one], step, remedy))


def _check_returned(samples: Sequence[BoundRule], returned: Sequence[Any]) -> None:
    tried = [(bound.label, weight) for bound in samples for weight in bound.weights]
    for (label, weight), (shape, number, *_) in zip(tried, returned, strict=True):
        check_shape(label, weight, shape, dtype_of(number))


def _one_of_each(weights: Sequence[Parameter]) -> list[int]:
    first: dict[tuple[Any, ...], int] = {}
    for position, weight in enumerate(weights):
        first.setdefault((weight.shape, weight.dtype), position)
    return list(first.values())


def check_names(bound_rules: Sequence[BoundRule]) -> None:
    """Refuse two different parameters of one name, which MindSpore allows in no graph.

    Raises:
        ConflictError: There are two.
    """
    seen: dict[str, Parameter] = {}
    for bound in bound_rules:
        beside = [value for kind in bound.beside for value in kind if isinstance(value, Parameter)]
        for parameter in [*bound.weights, *beside, *bound.state]:
            if seen.setdefault(str(parameter.name), parameter) is not parameter:
                raise ConflictError(
                    f"rule {bound.label} reads another parameter named {parameter.name!r}, and no "
                    "graph holds both; rename one network's: net.update_parameters_name('other.')"
                )


def check_shape(label: str, weight: Parameter, shape: Sequence[int], dtype: Any) -> None:
    """Refuse a new value that does not fit its weight; ``dtype`` None stands for no Tensor at all.

    Raises:
        ArgumentTypeError: It is no Tensor.
        ShapeError: It has another shape or dtype.
    """
    if dtype is None:
        raise ArgumentTypeError(
            f"rule {label} returns no Tensor for {weight.name!r}; return the new weight"
        )
    if (tuple(shape), dtype) != (weight.shape, weight.dtype):
        raise ShapeError(
            f"rule {label} changes shape or dtype of {weight.name!r}; return the new weight\n"
            f"before: {str(weight.dtype).lower()} {weight.shape}\n"
            f"after: {str(dtype).lower()} {tuple(shape)}"
        )


def keep_states(bound_rules: Sequence[BoundRule]) -> list[tuple[Parameter, np.ndarray]]:
    """Copy what the rules may change beside the weights."""
    return [(state, copy_of(state)) for bound in bound_rules for state in bound.state]


def put_back(kept: Sequence[tuple[Parameter, np.ndarray]]) -> None:
    """Write what was kept."""
    for parameter, values in kept:
        write(parameter, values)
