"""The cells of a network: walking all of them, wrappers too, and forgetting compiled graphs."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from itertools import count
from types import FunctionType

from mindspore import nn

from msgrad._paths import is_wrapper

_STATES = "_msgrad_states"
_numbers = count(time.time_ns())
_generation = [0]


def every_cell(net: nn.Cell) -> list[nn.Cell]:
    """List each cell once in network order, wrappers included (`cells_and_names` passes over them).

    A wrapper stands behind the cell that it wraps, as its own parameters do.
    """
    return list(_walk(net))


def _walk(net: nn.Cell) -> Iterator[nn.Cell]:
    seen: set[int] = set()
    opened: set[int] = set()
    # a stack of its own: a network may be deeper than Python's recursion limit allows
    stack = [net]
    while stack:
        top = stack.pop()
        if id(top) in seen:
            continue
        if is_wrapper(top) and id(top) not in opened:
            opened.add(id(top))
            stack += [top, top.__dict__["_cells"]["cell"]]
            continue
        seen.add(id(top))
        yield top
        stack.extend(reversed(children(top)))


def children(cell: nn.Cell) -> list[nn.Cell]:
    """List the direct children; `_cells` holds None for an attribute that was set to None."""
    return [child for child in cell.__dict__["_cells"].values() if child is not None]


def forget_compiled(net: nn.Cell) -> None:
    """Clear the compiled graphs of a network: attributes read at compile time are read again."""
    _generation[0] += 1
    kinds: dict[type[nn.Cell], bool] = {}
    for cell in every_cell(net):
        cell.compile_cache.clear()
        kind = type(cell)
        if kind not in kinds:
            kinds[kind] = any(map(_is_jit, (getattr(kind, name, None) for name in dir(kind))))
        if kinds[kind] or any(map(_is_jit, cell.__dict__.values())):
            # the graph of a method under ms.jit is kept elsewhere, by this number
            cell.__dict__["_create_time"] = next(_numbers)


def recall_compiled(net: nn.Cell, state: Hashable) -> None:
    """Go to the compiled graphs of one state of a network; a new state has none yet.

    MindSpore finds a graph by a number of the cell, in both modes and for methods under ms.jit.
    """
    states = net.__dict__.setdefault(_STATES, {})
    number = states.setdefault((_generation[0], state), next(_numbers))
    for cell in every_cell(net):
        cell.__dict__["_create_time"] = number


def _is_jit(value: object) -> bool:
    return isinstance(value, FunctionType) and hasattr(value, "__wrapped_by_jit__")
