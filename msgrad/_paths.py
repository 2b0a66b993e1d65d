"""The paths of a network: where its cells and parameters stand, each place of a shared one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mindspore import Parameter, nn

from msgrad._errors import ConflictError


class Place(NamedTuple):
    """One place where a parameter stands: its path, and the cell and key that own it there."""

    path: str
    owner: nn.Cell
    key: str
    parameter: Parameter


def is_wrapper(cell: nn.Cell) -> bool:
    """Return whether the cell is a wrapper, whose wrapped cell takes its path."""
    return getattr(type(cell), "_msgrad_wrapper", False)


def layers_of(cell: nn.Cell) -> list[nn.Cell]:
    """Return the cell and, where it is a wrapper, the cells inside it, the wrapped one last."""
    layers = [cell]
    while is_wrapper(layers[-1]):
        layers.append(layers[-1]._cells["cell"])
    return layers


def cell_paths(net: nn.Cell) -> list[tuple[str, nn.Cell]]:
    """Return every path to every cell, the network itself first under `""`, in network order.

    Unlike `cells_and_names` a cell that stands in several places is listed at each of them. At the
    path of a wrapper stands the outermost wrapper.

    Examples:
        >>> [path for path, _ in cell_paths(nn.SequentialCell(nn.Dense(4, 8), nn.ReLU()))]
        ['', '0', '1']
    """
    found: list[tuple[str, nn.Cell]] = []
    # A stack of its own: a network may be deeper than Python's recursion limit.
    waiting: list[tuple[str, nn.Cell, frozenset[int]]] = [("", net, frozenset())]
    while waiting:
        path, cell, above = waiting.pop()
        if id(cell) in above:
            continue
        found.append((path, cell))
        children = layers_of(cell)[-1]._cells
        inside = above | {id(cell)} if children else above
        for name, child in reversed(children.items()):
            if child is not None:
                waiting.append((f"{path}.{name}" if path else name, child, inside))
    return found


def places(net: nn.Cell) -> list[Place]:
    """Return every place where a parameter of the network stands, in network order.

    Examples:
        >>> [place.path for place in places(nn.Dense(4, 8))]
        ['weight', 'bias']
    """
    found = []
    for path, cell in cell_paths(net):
        owner = layers_of(cell)[-1]
        for key, parameter in owner._params.items():
            if parameter is not None:
                if parameter.inited_param is not None:
                    parameter = parameter.inited_param
                found.append(Place(f"{path}.{key}" if path else key, owner, key, parameter))
    return found


def paths_of(net: nn.Cell) -> dict[Parameter, list[str]]:
    """Return every parameter of the network with all its paths, in network order.

    Raises:
        ConflictError: Two different parameters have one name.

    Examples:
        >>> list(paths_of(nn.Dense(4, 8)).values())
        [['weight'], ['bias']]
    """
    return group_by_parameter(places(net))


def group_by_parameter(where: Iterable[Place]) -> dict[Parameter, list[str]]:
    """Return the paths of each parameter, in the order of its first place.

    Raises:
        ConflictError: Two different parameters have one name.

    Examples:
        >>> list(group_by_parameter(places(nn.Dense(4, 8)))).__len__()
        2
    """
    paths: dict[Parameter, list[str]] = {}
    by_name: dict[str, Parameter] = {}
    for place in where:
        paths.setdefault(place.parameter, []).append(place.path)
        first = by_name.setdefault(place.parameter.name, place.parameter)
        if first is not place.parameter:
            raise ConflictError(
                f"name {first.name!r} belongs to two parameters, at {paths[first][0]!r} and at "
                f"{place.path!r}; set the .name of one of them to its path"
            )
    return paths
