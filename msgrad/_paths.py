"""The paths of a network: where its cells and parameters stand, each place of a shared one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mindspore import Parameter, nn

from msgrad._collector import collector_paused
from msgrad._errors import ConflictError


class Place(NamedTuple):
    """One place where a parameter stands: its path, and the cell and key that own it there."""

    path: str
    owner: nn.Cell
    key: str
    parameter: Parameter


class _Stop(NamedTuple):
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


@collector_paused()
def cell_paths(net: nn.Cell) -> list[tuple[str, nn.Cell]]:
    """Return every path to every cell, the network itself first under `""`, in network order.

    Unlike `cells_and_names` a cell that stands in several places is listed at each of them. At the
    path of a wrapper stands the outermost wrapper.

    Examples:
        >>> [path for path, _ in cell_paths(nn.SequentialCell(nn.Dense(4, 8), nn.ReLU()))]
        ['', '0', '1']
    """
    return [(stop.path, stop.cell) for stop in _walk(net) if stop.cell is not None]


@collector_paused()
def places(net: nn.Cell) -> list[Place]:
    """Return every place where a parameter of the network stands, in network order.

    Examples:
        >>> [place.path for place in places(nn.Dense(4, 8))]
        ['weight', 'bias']
    """
    found = []
    for path, _, owner, _ in _walk(net):
        for key, parameter in owner._params.items():
            if parameter is not None:
                # As in `parameters_and_names`: a lazily initialised one has moved there.
                parameter = parameter if parameter.inited_param is None else parameter.inited_param
                found.append(Place(_join(path, key), owner, key, parameter))
    return found


def _walk(net: nn.Cell) -> Iterator[_Stop]:
    # A stack of its own: a network may be deeper than Python's recursion limit.
    waiting = _stops("", net, frozenset())[::-1]
    while waiting:
        stop = waiting.pop()
        yield stop
        inside = [
            inner
            for key, child in stop.owner._cells.items()
            if child is not None and not (key == "cell" and is_wrapper(stop.owner))
            for inner in _stops(_join(stop.path, key), child, stop.above)
        ]
        waiting.extend(reversed(inside))


def _stops(path: str, cell: nn.Cell, above: frozenset[int]) -> list[_Stop]:
    if id(cell) in above:
        return []
    *wrappers, core = layers_of(cell)
    inside = above | {id(cell)} if core._cells or wrappers else above
    return [
        _Stop(path, cell, core, inside),
        *(_Stop(path, None, wrapper, inside) for wrapper in reversed(wrappers)),
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
    for path, _, _, parameter in places(net):
        # read once: the property of a Parameter waits for what was launched
        first, paths = found.setdefault(parameter.name, (parameter, []))
        paths.append(path)
        if first is not parameter:
            raise ConflictError(
                f"name {first.name!r} belongs to two parameters, at {paths[0]!r} and at "
                f"{path!r}; set the .name of one of them to its path"
            )
    return found
