"""The cells of a network: walking all of them, wrappers too, and forgetting compiled graphs."""

from __future__ import annotations

from collections.abc import Iterator

from mindspore import nn


def every_cell(net: nn.Cell) -> list[nn.Cell]:
    """List each cell once in network order, wrappers included (`cells_and_names` passes over them)."""
    return list(_walk(net, set()))


def _walk(cell: nn.Cell, seen: set[int]) -> Iterator[nn.Cell]:
    # a stack of its own: a network may be deeper than Python's recursion limit allows
    stack = [cell]
    while stack:
        top = stack.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        yield top
        stack.extend(reversed(children(top)))


def children(cell: nn.Cell) -> list[nn.Cell]:
    """List the direct children; `_cells` holds None for an attribute that was set to None."""
    return [child for child in cell.__dict__["_cells"].values() if child is not None]


def forget_compiled(net: nn.Cell) -> None:
    """Clear the compiled graphs of a network, so that attributes read at compile time are read again."""
    for cell in every_cell(net):
        cell.compile_cache.clear()
