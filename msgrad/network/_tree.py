"""The paths of a network: where its cells and parameters stand, each place of a shared one."""

from __future__ import annotations

import gc
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from types import FunctionType
from typing import NamedTuple

from mindspore import Parameter, nn

from msgrad._text import few
from msgrad.errors import ConflictError


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let no garbage be collected in a block that makes many small objects and keeps them.

    With 100,000 parameters a selection took 1.5 to 2 times as long otherwise. Also a decorator.

    Examples:
        >>> with collector_paused():
        ...     gc.isenabled()
        False
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Place(NamedTuple):
    """One place where a parameter stands: its path, and the cell and key that own it there."""

    path: str
    owner: nn.Cell
    key: str
    parameter: Parameter


class _Visit(NamedTuple):
    """A stop of the walk: a cell that has a path, and whose parameters are listed now.

    A wrapper has two: where it stands for what it wraps, and, behind all of that, its own.
    """

    path: str
    cell: nn.Cell | None
    owner: nn.Cell
    above: frozenset[int]


def is_wrapper(cell: nn.Cell) -> bool:
    """Return whether the cell is a wrapper, whose wrapped cell takes its path."""
    return getattr(type(cell), "_msgrad_wrapper", False)


def layers_of(cell: nn.Cell) -> list[nn.Cell]:
    """Return the cell and, where it is a wrapper, the cells inside it, the wrapped one last."""
    layers = [cell]
    while is_wrapper(layers[-1]):
        layers.append(layers[-1]._cells["cell"])
    return layers


def core_of(cell: nn.Cell) -> nn.Cell:
    """Return what a wrapper wraps in the end; any other cell itself."""
    return layers_of(cell)[-1]


class Tree:
    """A network as one walk found it: for one operation, in which no cell comes or goes.

    Args:
        net: The network; what is made of the walk is made once.
    """

    def __init__(self, net: nn.Cell) -> None:
        self.net = net
        self.visits = list(_walk(net))

    @cached_property
    def cells(self) -> list[nn.Cell]:
        """Each cell once, in network order; a wrapper stands behind the cell that it wraps."""
        return list({id(visit.owner): visit.owner for visit in self.visits}.values())

    @cached_property
    def children_first(self) -> list[nn.Cell]:
        """Each cell once, behind all that stands in it."""
        done: dict[int, nn.Cell] = {}
        opened: set[int] = set()
        stack = [self.net]
        while stack:
            cell = stack.pop()
            if id(cell) in done:
                continue
            if id(cell) in opened:
                done[id(cell)] = cell
                continue
            opened.add(id(cell))
            stack += [cell, *(child for child in children(cell) if id(child) not in opened)]
        return list(done.values())


_trees: list[dict[int, Tree]] = []


@contextmanager
def one_walk() -> Iterator[None]:
    """Walk each network once in a block, which is one operation of the user's.

    What changes a network in it, or calls functions of the user's that may, says `forget_walk`.
    """
    if _trees:
        yield
        return
    _trees.append({})
    try:
        yield
    finally:
        _trees.clear()


def forget_walk() -> None:
    """Walk anew from here on: cells came or went."""
    if _trees:
        _trees[0].clear()


def tree_of(net: nn.Cell) -> Tree:
    """Return the walk of a network: that of the operation, or a fresh one where there is none."""
    known = _trees[0] if _trees else {}
    return known[id(net)] if id(net) in known else known.setdefault(id(net), Tree(net))


@collector_paused()
def cell_paths(net: nn.Cell) -> list[tuple[str, nn.Cell]]:
    """Return every path to every cell, the network itself first under `""`, in network order.

    Unlike `cells_and_names` a cell that stands in several places is listed at each of them. At the
    path of a wrapper stands the outermost wrapper.

    Examples:
        >>> [path for path, _ in cell_paths(nn.SequentialCell(nn.Dense(4, 8), nn.ReLU()))]
        ['', '0', '1']
    """
    return [(visit.path, visit.cell) for visit in tree_of(net).visits if visit.cell is not None]


@collector_paused()
def places(net: nn.Cell) -> list[Place]:
    """Return every place where a parameter of the network stands, in network order.

    Examples:
        >>> [place.path for place in places(nn.Dense(4, 8))]
        ['weight', 'bias']
    """
    found = []
    for path, _, owner, _ in tree_of(net).visits:
        for key, parameter in owner._params.items():
            if parameter is not None:
                # As in `parameters_and_names`: a lazily initialised one has moved there.
                parameter = parameter if parameter.inited_param is None else parameter.inited_param
                found.append(Place(_join(path, key), owner, key, parameter))
    return found


def _walk(net: nn.Cell) -> Iterator[_Visit]:
    # A stack of its own: a network may be deeper than Python's recursion limit.
    waiting = _visits("", net, frozenset())[::-1]
    while waiting:
        visit = waiting.pop()
        yield visit
        inside = [
            inner
            for key, child in visit.owner._cells.items()
            if child is not None and not (key == "cell" and is_wrapper(visit.owner))
            for inner in _visits(_join(visit.path, key), child, visit.above)
        ]
        waiting.extend(reversed(inside))


def _visits(path: str, cell: nn.Cell, above: frozenset[int]) -> list[_Visit]:
    if id(cell) in above:
        return []
    *wrappers, core = layers_of(cell)
    inside = above | {id(cell)} if core._cells or wrappers else above
    return [
        _Visit(path, cell, core, inside),
        *(_Visit(path, None, wrapper, inside) for wrapper in reversed(wrappers)),
    ]


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def paths_of(net: nn.Cell) -> dict[Parameter, list[str]]:
    """Return every parameter of the network with all its paths, in network order.

    Raises:
        ConflictError: Two different parameters have one name.

    Examples:
        >>> list(paths_of(nn.Dense(4, 8)).values())
        [['weight'], ['bias']]
    """
    return dict(named_places(net).values())


def named_places(net: nn.Cell) -> dict[str, tuple[Parameter, list[str]]]:
    """Return every parameter of the network with all its paths, by its name, in network order.

    Raises:
        ConflictError: Two different parameters have one name.

    Examples:
        >>> list(named_places(nn.Dense(4, 8)))
        ['weight', 'bias']
    """
    found: dict[str, tuple[Parameter, list[str]]] = {}
    twice: list[str] = []
    for path, _, _, parameter in places(net):
        # read once: the property of a Parameter waits for what was launched
        name = parameter.name
        first, paths = found.setdefault(name, (parameter, []))
        if first is parameter:
            paths.append(path)
        else:
            twice.append(
                f"name {name!r} belongs to two parameters, at {paths[0]!r} and at {path!r}"
            )
    if twice:
        raise ConflictError(
            f"{few(twice, 10, '; ')}; give each its path as name: "
            "for path, p in net.parameters_and_names(): p.name = path"
        )
    return found


_STATES = "_msgrad_states"
_numbers = count(time.time_ns())
_generation = [0]


def every_cell(net: nn.Cell) -> list[nn.Cell]:
    """List each cell once in network order, wrappers included (`cells_and_names` passes over them).

    A wrapper stands behind the cell that it wraps, as its own parameters do.
    """
    # without paths a lone list takes a third of the time
    return list(tree_of(net).cells if _trees else _walk_once(net))


def _walk_once(net: nn.Cell) -> Iterator[nn.Cell]:
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
