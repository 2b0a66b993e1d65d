"""A weight's values: the one way to copy them, to write them, and to compare their bits."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.errors import ArgumentError


def copy_of(weight: Tensor) -> np.ndarray:
    """Return the values as an array of their own; bfloat16 is widened to float32, exactly."""
    if weight.dtype == mstype.bfloat16:
        weight = ops.cast(weight, mstype.float32)
    # On the CPU asnumpy shares memory with the weight.
    return np.array(weight.asnumpy(), copy=True)


_lent: list[frozenset[int]] = []


@contextmanager
def lent(parameters: Iterable[Parameter]) -> Iterator[None]:
    """Mark weights that have other values for the length of a block, and their own behind it."""
    _lent.append(frozenset(map(id, parameters)))
    try:
        yield
    finally:
        _lent.pop()


def refuse_lent(parameters: Iterable[Parameter], what: str) -> None:
    """Refuse what would take lent values for the weights, or would lose what it writes.

    Raises:
        ArgumentError: One of the parameters is lent to.
    """
    if _lent and any(id(p) in ids for p in parameters for ids in _lent):
        raise ArgumentError(f"average is swapped in already: {what}; leave swap() first")


_writes = [0]


def writes() -> int:
    """Count the values that were written from Python so far."""
    return _writes[0]


def write(parameter: Parameter, value: Tensor | np.ndarray) -> None:
    """Write values of the same shape and dtype in place; the weight stays the optimizer's.

    `set_data` and `assign_value` detach a weight from the optimizer in some modes and check no
    shape.
    """
    _writes[0] += 1
    if not isinstance(value, Tensor):
        value = Tensor(value, parameter.dtype)
    if parameter.dtype == mstype.bfloat16 and ms.get_context("device_target") == "CPU":
        # Assign has no such kernel there; nor has any optimizer, so that none can lose the weight
        parameter.assign_value(value)
        return
    ops.assign(parameter, value)


def bits(values: np.ndarray) -> np.ndarray:
    """View the values as unsigned integers: -0.0 differs from 0.0, NaN equals the same NaN."""
    values = np.ascontiguousarray(values)
    return (
        values.view(f"u{values.dtype.itemsize}")
        if values.dtype.itemsize in (1, 2, 4, 8)
        else values.view("u1")
    )


def norm_of(values: np.ndarray) -> float:
    """Return the Euclidean norm: NaN where an element is, infinite where one is."""
    values = values.astype(np.float64, copy=False).ravel()
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    # scaled, so that the squares neither overflow nor vanish
    return largest * float(np.linalg.norm(values / largest))


_numbers = itertools.count()


def hide(cell: nn.Cell, name: str, value: float, dtype: Any) -> None:
    """Keep a number under an attribute of a cell.

    It is a Parameter, so that a graph sees each change, but none of the cell's: it is in no list
    of names, in no checkpoint and with no optimizer.
    """
    object.__setattr__(cell, name, hidden(name, value, dtype))


def hidden(name: str, value: float | np.ndarray, dtype: Any) -> Parameter:
    """Return a Parameter of a name that no other has, for a graph to read or to write."""
    return Parameter(Tensor(value, dtype), name=_fresh(name), requires_grad=False)


def rename_hidden(copy: nn.Cell) -> None:
    """Give the hidden numbers of a copied cell names of their own."""
    for name, value in copy.__dict__.items():
        if isinstance(value, Parameter):
            value.name = _fresh(name)


def _fresh(name: str) -> str:
    # No two parameters of one graph may have one name, not even those of a cell and its copy.
    return f"msgrad.{name}.{next(_numbers)}"
