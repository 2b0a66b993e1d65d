"""A hidden number: beside the parameters of a cell, read by a graph at each call, and no weight."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn

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
