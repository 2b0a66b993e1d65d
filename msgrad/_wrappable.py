"""Whether a wrapper around a cell would have an effect wherever the cell is called."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from mindspore import nn

from msgrad._cells import every_cell
from msgrad._errors import ArgumentError
from msgrad._paths import cell_paths, layers_of

_HOLDERS = (dict, list, tuple, set, frozenset)


def check_wrappable(net: nn.Cell, chosen: Container[nn.Cell]) -> None:
    """Refuse cells around which a wrapper would have no effect, or not everywhere.

    Raises:
        ArgumentError: There is such a cell.
    """
    paths = [(path, cell) for path, cell in cell_paths(net) if path and _core(cell) in chosen]
    _check_construct(paths)
    _check_lists(net, paths)


def _core(cell: nn.Cell) -> nn.Cell:
    return layers_of(cell)[-1]


def _check_construct(paths: list[tuple[str, nn.Cell]]) -> None:
    nothing = {nn.Cell.construct, nn.CellList.construct, nn.CellDict.construct}
    for path, cell in paths:
        if type(_core(cell)).construct in nothing:
            raise ArgumentError(
                f"cell {path!r} is a {type(cell).__name__}, which is never called itself; "
                f"wrap its items: '{path}.*'"
            )


def _check_lists(net: nn.Cell, paths: list[tuple[str, nn.Cell]]) -> None:
    """Refuse a cell that the network also reaches past `_cells`, where no wrapper can stand."""
    sought = {id(_core(cell)): path for path, cell in reversed(paths)}
    for holder in every_cell(net):
        for name, value in _plain(holder):
            for cell in _cells_in(value):
                if id(_core(cell)) in sought:
                    where = {_core(cell): path for path, cell in reversed(cell_paths(net))}
                    at = f"{where.get(_core(holder), '')}.{name}".lstrip(".")
                    raise ArgumentError(
                        f"cell {sought[id(_core(cell))]!r} is also held in the plain "
                        f"{type(value).__name__} {at!r}, past any wrapper; keep those cells in an "
                        "nn.CellList and call them from there"
                    )


def _plain(holder: nn.Cell) -> Iterator[tuple[str, Any]]:
    for name, value in holder.__dict__.items():
        # first what leaves out nearly all of the dozens of attributes of every cell
        if isinstance(value, nn.Cell) or (isinstance(value, _HOLDERS) and value):
            mirror = name == "cell_list" and isinstance(holder, nn.SequentialCell)
            if name != "_cells" and not mirror and not name.startswith("_msgrad"):
                yield name, value


def _cells_in(value: Any) -> Iterator[nn.Cell]:
    if isinstance(value, nn.Cell):
        yield value
    elif isinstance(value, dict):
        yield from _cells_in(list(value.values()))
    elif isinstance(value, _HOLDERS):
        for item in value:
            yield from _cells_in(item)
