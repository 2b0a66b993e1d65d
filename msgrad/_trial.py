"""The trial of rules: compiled alone, on one weight of each kind, before anything changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor

from msgrad._errors import ArgumentError, ArgumentTypeError, ConflictError, ShapeError
from msgrad._mode import computes
from msgrad._passes import Group, Shapes, Whole, dtype_of, run
from msgrad._rules import check_readable
from msgrad._weights import bits, copy_of, write
from msgrad._work import Work

_SMALL = 4


def try_rules(works: Sequence[Work], step: Tensor, remedy: str) -> None:
    """Refuse rules that do not compile, change their input or return something else than a weight.

    Args:
        works: The rules and their weights.
        step: A step number to compile with.
        remedy: What to do about a rule that does not compile.

    Raises:
        ArgumentError: A rule cannot be compiled, or changes its input in place.
        ArgumentTypeError: A rule returns no Tensor.
        ConflictError: Two parameters that would stand in one graph have one name.
        ShapeError: A rule returns another shape or dtype than the weight's.
    """
    for work in works:
        check_readable(work.label, work.rule, remedy)
    check_names(works)
    kept = keep_states(works)
    try:
        _try_in_place(works, step, remedy)
        samples = [work.at(_one_of_each(work.weights)) for work in works]
        _check_returned(samples, _run(Shapes, samples, step, remedy))
    finally:
        put_back(kept)


def _try_in_place(works: Sequence[Work], step: Tensor, remedy: str) -> None:
    """Run each rule on a stand-in, and see whether that changes."""
    small = [_stand_in(work, _SMALL) for work in works]
    try:
        run(Whole, small, step)
    except Exception:
        # A rule may need the shape of its weight.
        small = [_stand_in(work, None) for work in works]
        _check_returned(small, _run(Whole, small, step, remedy))
    for work in small if computes() else ():
        stand_in = work.weights[0]
        untouched = copy_of(_values(stand_in.shape, stand_in.dtype))
        if (bits(copy_of(stand_in)) != bits(untouched)).any():
            raise ArgumentError(
                f"rule {work.label} changes its input in place; return a new tensor, "
                "as in w = w * 0.5 for w *= 0.5"
            )


def _stand_in(work: Work, longest: int | None) -> Work:
    """Put another parameter in the place of the smallest weight, each axis at most so long."""
    smallest = min(range(len(work.weights)), key=lambda place: work.weights[place].size)
    weight = work.weights[smallest]
    shape = tuple(size if longest is None else min(size, longest) for size in weight.shape)
    stand_in = Parameter(_values(shape, weight.dtype), name=str(weight.name))
    return replace(work.at([smallest]), weights=(stand_in,))


def _values(shape: tuple[int, ...], dtype: Any) -> Tensor:
    """Return numbers that clipping, scaling and a sign change would all change."""
    return Tensor(np.linspace(-97.3, 101.7, math.prod(shape)).reshape(shape), dtype)


def _run(kind: type[Group], samples: list[Work], step: Tensor, remedy: str) -> tuple[Any, ...]:
    try:
        return run(kind, samples, step)
    except Exception as error:
        if len(samples) == 1:
            reason = str(error).strip().partition("\n")[0]
            raise ArgumentError(
                f"rule {samples[0].label} cannot be compiled ({reason}); {remedy}"
            ) from error
    # The message did not say which rule it was.
    return tuple(found for one in samples for found in _run(kind, [one], step, remedy))


def _check_returned(samples: Sequence[Work], returned: Sequence[Any]) -> None:
    tried = [(work.label, weight) for work in samples for weight in work.weights]
    for (label, weight), (shape, number, *_) in zip(tried, returned, strict=True):
        check_shape(label, weight, shape, dtype_of(number))


def _one_of_each(weights: Sequence[Parameter]) -> list[int]:
    first: dict[tuple[Any, ...], int] = {}
    for place, weight in enumerate(weights):
        first.setdefault((weight.shape, weight.dtype), place)
    return list(first.values())


def check_names(works: Sequence[Work]) -> None:
    """Refuse two different parameters of one name, which MindSpore allows in no graph.

    Raises:
        ConflictError: There are two.
    """
    seen: dict[str, Parameter] = {}
    for work in works:
        beside = [value for kind in work.beside for value in kind if isinstance(value, Parameter)]
        for parameter in [*work.weights, *beside, *work.state]:
            if seen.setdefault(str(parameter.name), parameter) is not parameter:
                raise ConflictError(
                    f"rule {work.label} reads another parameter named {parameter.name!r}, and no "
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


def keep_states(works: Sequence[Work]) -> list[tuple[Parameter, np.ndarray]]:
    """Copy what the rules may change beside the weights."""
    return [(state, copy_of(state)) for work in works for state in work.state]


def put_back(kept: Sequence[tuple[Parameter, np.ndarray]]) -> None:
    """Write what was kept."""
    for parameter, values in kept:
        write(parameter, values)
