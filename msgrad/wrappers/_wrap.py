"""Putting wrappers into a network and taking them out again, without touching a single name."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from mindspore import nn

from msgrad.errors import ArgumentError, ArgumentTypeError, NoMatchError
from msgrad.network import (
    CellPattern,
    cell_paths,
    core_of,
    every_cell,
    forget_compiled,
    forget_walk,
    is_wrapper,
    layers_of,
    select_cells,
    show,
)
from msgrad.wrappers._wrapper import CellWrapper, own_parameters

_HOLDERS = (dict, list, tuple, set, frozenset)


def check_wrappable(net: nn.Cell, chosen: Container[nn.Cell]) -> None:
    """Refuse cells around which a wrapper would have no effect, or not everywhere.

    Raises:
        ArgumentError: There is such a cell.
    """
    paths = [(path, cell) for path, cell in cell_paths(net) if path and core_of(cell) in chosen]
    _check_construct(paths)
    _check_lists(net, paths)


def _check_construct(paths: list[tuple[str, nn.Cell]]) -> None:
    nothing = {nn.Cell.construct, nn.CellList.construct, nn.CellDict.construct}
    for path, cell in paths:
        if type(core_of(cell)).construct in nothing:
            raise ArgumentError(
                f"cell {path!r} is a {type(cell).__name__}, which is never called itself; "
                f"wrap its items: '{path}.*'"
            )


def _check_lists(net: nn.Cell, paths: list[tuple[str, nn.Cell]]) -> None:
    """Refuse a cell that the network also reaches past `_cells`, where no wrapper can stand."""
    sought = {id(core_of(cell)): path for path, cell in reversed(paths)}
    for holder in every_cell(net):
        for name, value in _plain(holder):
            for cell in _cells_in(value):
                if id(core_of(cell)) in sought:
                    where = {core_of(cell): path for path, cell in reversed(cell_paths(net))}
                    at = f"{where.get(core_of(holder), '')}.{name}".lstrip(".")
                    raise ArgumentError(
                        f"cell {sought[id(core_of(cell))]!r} is also held in the plain "
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


_changes = 0


class _Slot(NamedTuple):
    """An entry of `_cells` and what stands there, wrappers and all."""

    parent: nn.Cell
    key: str
    cell: nn.Cell


def wrap_changes() -> int:
    """Return a number that grows with every wrapping and unwrapping, anywhere."""
    return _changes


def wrap(
    net: nn.Cell, *patterns: CellPattern, wrapper: Callable[[nn.Cell], CellWrapper]
) -> list[str]:
    """Put a wrapper around each cell that the patterns choose, in place.

    All or nothing: everything is checked before the network is changed. A cell that stands in
    several places gets the wrapper in all of them; around a wrapped cell the new wrapper is the
    outer one. The compiled graphs of ``net`` are forgotten, so that the next call sees the
    wrapper; a graph that somebody else keeps (``ms.jit``, ``ms.grad``, an outer train cell made
    by hand) must be made again.

    Args:
        net: Cell to change, in place.
        *patterns: Cells to wrap, paths, Cell classes, cells, callables ``(path, cell) -> bool``.
        wrapper: Called with each cell once, gives the CellWrapper to put in its place; a subclass
            of CellWrapper, or a function that returns one.

    Returns:
        The paths of the wrapped cells, in network order.

    Raises:
        NoMatchError: A pattern matches no cell.
        ArgumentError: A cell is the network itself, has no ``construct`` (CellList, CellDict), or
            is also held in a plain list, tuple or dict.
        ArgumentTypeError: ``wrapper`` gives something else than a wrapper of that cell.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> mg.wrap(net, nn.Dense, wrapper=mg.StopGradient)
        ['0', '2']
        >>> [p.name for p in net.get_parameters()]
        ['0.weight', '0.bias', '2.weight', '2.bias']
    """
    if isinstance(wrapper, nn.Cell) or (
        isinstance(wrapper, type) and not issubclass(wrapper, CellWrapper)
    ):
        raise ArgumentTypeError(
            f"wrapper {show(wrapper)} makes no CellWrapper; give a CellWrapper subclass or a "
            "function from a cell to a CellWrapper"
        )
    if not callable(wrapper):
        raise ArgumentTypeError(
            f"wrapper {wrapper!r} cannot be called; give a CellWrapper subclass or a function "
            "from a cell to a CellWrapper"
        )
    chosen = {core_of(cell) for _, cell in select_cells(net, *patterns)}
    check_wrappable(net, chosen)
    return wrap_cells(net, chosen, wrapper)


def wrap_cells(
    net: nn.Cell, chosen: Container[nn.Cell], wrapper: Callable[[nn.Cell], CellWrapper]
) -> list[str]:
    """Put a wrapper, or several, around each of the cells, which may stand inside each other."""
    paths = [(path, cell) for path, cell in cell_paths(net) if path and core_of(cell) in chosen]
    made = {cell: _made(wrapper, path, cell) for path, cell in reversed(paths)}
    for path, cell in paths:
        _name_own_parameters(made[cell], path)
    _install((slot, made[slot.cell]) for slot in _slots(net) if slot.cell in made)
    _changed(net)
    return [path for path, _ in paths]


def unwrap(
    net: nn.Cell, *patterns: CellPattern, kind: type[CellWrapper] = CellWrapper
) -> list[str]:
    """Take wrappers off again, in place: the very same cells stand where they stood.

    All layers of that kind go, wrappers of other kinds stay. Without a pattern the whole network
    is unwrapped.

    Args:
        net: Cell to change, in place.
        *patterns: Cells to unwrap, nested ones too; see ``wrap``.
        kind: Which wrappers to take off; subclasses count.

    Returns:
        The paths of the cells that lost a wrapper, in network order.

    Raises:
        NoMatchError: A pattern matches no cell, or none of the cells has such a wrapper.
        ArgumentError: ``net`` is itself such a wrapper.
        ArgumentTypeError: ``kind`` is no class of wrappers.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU())
        >>> first = net[0]
        >>> _ = mg.stop_gradient(net, "0")
        >>> mg.unwrap(net), net[0] is first
        (['0'], True)
    """
    if not (isinstance(kind, type) and issubclass(kind, CellWrapper)):
        raise ArgumentTypeError(f"kind {kind!r} is no class of wrappers; give StopGradient, say")
    if not patterns and isinstance(net, kind):
        raise ArgumentError(
            f"net is itself a {type(net).__name__}, which cannot be taken off in place; "
            "unwrap net.cell and go on with that"
        )
    there = [
        (path, wrapper)
        for path, wrapper in wrapped(net)
        # those of an open replay go with it, and by name only
        if isinstance(wrapper, kind) and not (wrapper.passing and kind is CellWrapper)
    ]
    if patterns:
        chosen = {core_of(cell) for _, cell in select_cells(net, *patterns, nested=True)}
        found = [(path, wrapper) for path, wrapper in there if core_of(wrapper) in chosen]
        if not found:
            names = ", ".join(repr(path) for path in dict.fromkeys(path for path, _ in there))
            raise NoMatchError(
                f"patterns {patterns!r} matched no cell in a {kind.__name__}; "
                f"wrapped so are {names or 'none'}",
                pattern=patterns,
            )
        there = found
    take_off(net, {wrapper for _, wrapper in there})
    return list(dict.fromkeys(path for path, _ in there))


def take_off(net: nn.Cell, gone: Container[nn.Cell]) -> None:
    """Take certain wrappers off, wherever in a network they stand."""
    for layer in {layer for _, layer in wrapped(net) if layer in gone}:
        layer.taken_off()
    _install((slot, _without(slot.cell, gone)) for slot in _slots(net))
    _changed(net)


def wrapped(net: nn.Cell) -> list[tuple[str, CellWrapper]]:
    """List the wrappers of a network with the paths where they stand.

    Args:
        net: Cell to look at; it is not changed.

    Returns:
        Paths and wrappers in network order; of several around one cell the outermost first.

    Raises:
        ArgumentTypeError: ``net`` is no Cell.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU())
        >>> _ = mg.scale_gradient(net, "0", scale=0.5)
        >>> [(path, type(wrapper).__name__) for path, wrapper in mg.wrapped(net)]
        [('0', 'ScaleGradient')]
    """
    if not isinstance(net, nn.Cell):
        raise ArgumentTypeError(f"net {net!r} is no Cell; give the network")
    return [
        (path, layer)
        for path, cell in cell_paths(net)
        for layer in layers_of(cell)
        if isinstance(layer, CellWrapper)
    ]


def stops_of(net: nn.Cell) -> tuple[tuple[str, str, str], ...]:
    """Return what the wrappers of a network do to its graph, as a key: path, class, and side.

    Factors are not in it: they change without compiling.
    """
    return tuple(
        (
            path,
            f"{type(layer).__module__}.{type(layer).__qualname__}",
            layer.__dict__.get("_at", ""),
        )
        for path, layer in wrapped(net)
    )


def _changed(net: nn.Cell) -> None:
    global _changes
    _changes += 1
    forget_compiled(net)


def _slots(net: nn.Cell) -> Iterator[_Slot]:
    """List the entries where a cell or its outermost wrapper stands; `net` may be a wrapper too."""
    for parent in every_cell(net):
        for key, cell in parent._cells.items():
            inside = is_wrapper(parent) and key == "cell" and parent is not net
            if cell is not None and not inside:
                yield _Slot(parent, key, cell)


def _install(replacements: Iterable[tuple[_Slot, nn.Cell]]) -> None:
    changed = {}
    for slot, cell in replacements:
        if cell is not slot.cell:
            # Not by setattr, which renames a parameter whose name is not its path.
            slot.parent._cells[slot.key] = cell
            changed[id(slot.parent)] = slot.parent
    forget_walk()
    for parent in changed.values():
        if isinstance(parent, nn.SequentialCell):
            parent.cell_list = list(parent._cells.values())


def _without(cell: nn.Cell, gone: Container[nn.Cell]) -> nn.Cell:
    """Link what remains of the layers around a cell and return the outermost."""
    kept = [layer for layer in layers_of(cell) if layer not in gone]
    for outer, inner in pairwise(kept):
        outer._cells["cell"] = inner
    return kept[0]


def _made(wrapper: Callable[[nn.Cell], CellWrapper], path: str, cell: nn.Cell) -> CellWrapper:
    result = wrapper(cell)
    if not isinstance(result, CellWrapper) or cell not in layers_of(result)[1:]:
        raise ArgumentTypeError(
            f"wrapper {wrapper!r} returned a {type(result).__name__} for cell {path!r}, not a "
            "CellWrapper around it; return StopGradient(cell), or a CellWrapper subclass of yours"
        )
    return result


def _name_own_parameters(wrapper: CellWrapper, path: str) -> None:
    for layer in layers_of(wrapper)[:-1]:
        for name, parameter in own_parameters(layer):
            if parameter.name == name:
                parameter.name = f"{path}.{name}"
