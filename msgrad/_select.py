"""A selection: the parameters, or the cells, of a network that patterns choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, overload

from mindspore import Parameter, nn

from msgrad._errors import ArgumentError, ArgumentTypeError, NoMatchError
from msgrad._names import Match, NamePattern, Names, last_wins, parse
from msgrad._paths import cell_paths, layers_of, paths_of, places

Pattern: TypeAlias = (
    "str | type[nn.Cell] | Callable[[str, Parameter], bool] | Parameter | Sequence[Pattern]"
)
CellPattern: TypeAlias = (
    "str | type[nn.Cell] | Callable[[str, nn.Cell], bool] | nn.Cell | Sequence[CellPattern]"
)
Thing = TypeVar("Thing", Parameter, nn.Cell)


class Selection(Sequence[Parameter]):
    """A read-only sequence of parameters in network order, each once; itself a pattern.

    Args:
        parameters: The parameters, in order.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> mg.select(nn.SequentialCell(nn.Dense(4, 8), nn.ReLU()), "0.bias")
        Selection(['0.bias'])
    """

    __slots__ = ("_parameters",)

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._parameters = tuple(parameters)

    @property
    def names(self) -> list[str]:
        """The `Parameter.name` of each."""
        return [parameter.name for parameter in self._parameters]

    @overload
    def __getitem__(self, index: int) -> Parameter: ...
    @overload
    def __getitem__(self, index: slice) -> Selection: ...
    def __getitem__(self, index: int | slice) -> Parameter | Selection:
        if isinstance(index, slice):
            return Selection(self._parameters[index])
        return self._parameters[index]

    def __len__(self) -> int:
        return len(self._parameters)

    # By identity: comparing tensors with == gives a tensor of booleans.
    def __contains__(self, value: object) -> bool:
        return any(parameter is value for parameter in self._parameters)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selection):
            return NotImplemented
        return [id(parameter) for parameter in self] == [id(parameter) for parameter in other]

    def __hash__(self) -> int:
        return hash(tuple(id(parameter) for parameter in self))

    def __repr__(self) -> str:
        return f"Selection({self.names})"


def select(
    net: nn.Cell, *patterns: Pattern, exclude: Pattern = (), missing_ok: bool = False
) -> Selection:
    """Choose parameters of a network.

    A string is a name or any path to a parameter or a cell: ``"conv1"``, ``"*.bias"``,
    ``"layers.{0..5}"``, ``"re:fc[12]"``; with ``!`` in front it takes away. A Cell class chooses
    what its instances own directly, a callable ``(name, parameter) -> bool`` what it is true for.
    Parameters, selections and lists stand for what they hold. The last match wins.

    Args:
        net: Cell to choose from; it is not changed.
        *patterns: What to choose; ``"*"`` takes everything, norm statistics included.
        exclude: What to take away in the end: a pattern of any kind, or a list of them.
        missing_ok: Whether a pattern may match nothing.

    Returns:
        The parameters in network order, each once.

    Raises:
        NoMatchError: A pattern matches nothing, or takes nothing away.
        ConflictError: Two different parameters of ``net`` have one name.
        ArgumentError: A pattern is malformed, or there is none.
        ArgumentTypeError: A pattern has a type that cannot be used, or ``net`` is no Cell.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> mg.select(net, nn.Dense, "!*.bias").names
        ['0.weight', '2.weight']
    """
    matcher = _Parameters(net)
    chosen = last_wins(
        _matches(matcher, patterns, missing_ok), matcher.names.count, missing_ok=missing_ok
    )
    if exclude != ():
        taken = _matches(matcher, [exclude], missing_ok)
        if not missing_ok:
            _check_taken(taken, chosen)
        chosen -= last_wins(taken, matcher.names.count, missing_ok=missing_ok)
    return Selection([matcher.things[item] for item in sorted(chosen)])


def select_cells(
    net: nn.Cell, *patterns: CellPattern, nested: bool = False, missing_ok: bool = False
) -> list[tuple[str, nn.Cell]]:
    """Choose cells of a network by their paths.

    A string is matched against the paths of cells only; ``!`` takes away a cell with all inside
    it. A Cell class chooses its instances, wrapped ones too, a Cell itself, a callable
    ``(path, cell) -> bool`` what it is true for. The network itself is never among them.

    Args:
        net: Cell to choose from; it is not changed.
        *patterns: What to choose.
        nested: Whether to choose also what matches inside a cell that is chosen already.
        missing_ok: Whether a pattern may match nothing.

    Returns:
        Paths and cells in network order; a cell that stands in several places, at each of them; a
        wrapped cell as its outermost wrapper.

    Raises:
        NoMatchError: A pattern matches no cell, only a parameter, or takes nothing away.
        ArgumentError: A pattern is malformed or the network itself, or there is none.
        ArgumentTypeError: A pattern has a type that cannot be used, or ``net`` is no Cell.

    Examples:
        >>> from mindspore import nn
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> [path for path, _ in select_cells(net, nn.Dense)]
        ['0', '2']
    """
    matcher = _Cells(net)
    matches = _matches(matcher, patterns, missing_ok)
    chosen = last_wins(matches, matcher.names.count, missing_ok=missing_ok)
    if not nested:
        chosen = matcher.outermost(chosen)
        if not missing_ok:
            matcher.check_outside(matches, chosen)
    wanted = {id(matcher.things[item]) for item in chosen}
    return [(path, cell) for path, cell in matcher.everywhere if id(cell) in wanted]


class _Matcher(Generic[Thing]):
    """What patterns of each kind reach among the things of one network."""

    def __init__(self, net: nn.Cell, things: list[Thing], names: Names) -> None:
        self.net = net
        self.things = things
        self.names = names

    def found(self, pattern: Any) -> set[int]:
        raise NotImplementedError

    def no_match(self, pattern: Any) -> NoMatchError:
        raise NotImplementedError

    def those(self, wanted: Callable[[Thing], object]) -> set[int]:
        return {item for item, thing in enumerate(self.things) if wanted(thing)}


def _matches(matcher: _Matcher[Any], patterns: object, missing_ok: bool) -> list[Match]:
    leaves = list(_leaves(patterns))
    if not leaves:
        raise ArgumentError("patterns () are empty; give at least one, '*' for everything")
    # All are parsed before any is matched, so that a malformed one is reported first.
    parsed = [parse(leaf, matcher.names.under) if isinstance(leaf, str) else leaf for leaf in leaves]
    matches = []
    for pattern in parsed:
        found = matcher.found(pattern)
        if not found and not missing_ok:
            raise matcher.no_match(pattern)
        matches.append(Match(pattern, isinstance(pattern, NamePattern) and pattern.negated, found))
    return matches


def _leaves(patterns: object) -> Iterator[object]:
    if isinstance(patterns, (list, tuple, Selection)):
        for pattern in patterns:
            yield from _leaves(pattern)
    else:
        yield patterns


def _check_taken(taken: Sequence[Match], chosen: set[int]) -> None:
    for pattern, negated, found in taken:
        if not negated and not found & chosen:
            raise NoMatchError(
                f"exclude {show(pattern)} takes away none of {len(chosen)} chosen parameters; "
                "drop it, or choose more",
                pattern=pattern,
            )


def _checked(net: object) -> nn.Cell:
    if not isinstance(net, nn.Cell):
        raise ArgumentTypeError(f"net {net!r} is no Cell; give the network, then the patterns")
    return net


def show(pattern: object) -> str:
    """Return how a pattern of any kind is written in a message."""
    if isinstance(pattern, NamePattern):
        return repr(pattern.source)
    if isinstance(pattern, Parameter):
        return f"Parameter {pattern.name!r}"
    if isinstance(pattern, nn.Cell):
        return f"{type(pattern).__name__}(...)"
    return getattr(pattern, "__qualname__", None) or repr(pattern)


class _Parameters(_Matcher[Parameter]):
    def __init__(self, net: nn.Cell) -> None:
        paths = paths_of(_checked(net))
        names = Names([parameter.name, *where] for parameter, where in paths.items())
        super().__init__(net, list(paths), names)

    def found(self, pattern: Any) -> set[int]:
        if isinstance(pattern, NamePattern):
            return self.names.found(pattern)
        if isinstance(pattern, Parameter):
            return self.those(lambda parameter: parameter is pattern)
        if isinstance(pattern, type) and issubclass(pattern, nn.Cell):
            owned = {id(p.parameter) for p in places(self.net) if isinstance(p.owner, pattern)}
            return self.those(lambda parameter: id(parameter) in owned)
        if callable(pattern) and not isinstance(pattern, (type, nn.Cell)):
            return self.those(lambda parameter: pattern(parameter.name, parameter))
        raise ArgumentTypeError(
            f"pattern {show(pattern)} cannot choose parameters; give a name, a Cell class, "
            "a callable (name, parameter) -> bool, a Parameter, or a list of these"
        )

    def no_match(self, pattern: Any) -> NoMatchError:
        if isinstance(pattern, NamePattern):
            return self.names.no_match(pattern)
        remedy = "it was true for none; give a name"
        if isinstance(pattern, Parameter):
            remedy = "it belongs to another network; give its name here"
        elif isinstance(pattern, type):
            owners = dict.fromkeys(type(place.owner).__name__ for place in places(self.net))
            remedy = f"the cells that own parameters are {', '.join(owners)}"
        return _nothing(pattern, self.names, remedy)


class _Cells(_Matcher[nn.Cell]):
    def __init__(self, net: nn.Cell) -> None:
        self.everywhere = [(path, cell) for path, cell in cell_paths(_checked(net)) if path]
        paths: dict[nn.Cell, list[str]] = {}
        for path, cell in self.everywhere:
            paths.setdefault(cell, []).append(path)
        self.paths = list(paths.values())
        super().__init__(net, list(paths), Names(self.paths, "cells"))

    def found(self, pattern: Any) -> set[int]:
        if isinstance(pattern, NamePattern):
            # What is chosen is the cell at that path; what is taken away is all inside it as well.
            return self.names.found(pattern, whole=not pattern.negated)
        if pattern is self.net:
            raise network_itself(show(pattern))
        if isinstance(pattern, nn.Cell):
            return self.those(lambda cell: any(layer is pattern for layer in layers_of(cell)))
        if isinstance(pattern, type) and issubclass(pattern, nn.Cell):
            return self.those(
                lambda cell: any(isinstance(layer, pattern) for layer in layers_of(cell))
            )
        if callable(pattern) and not isinstance(pattern, (type, Parameter)):
            chosen = {id(cell) for path, cell in self.everywhere if pattern(path, cell)}
            return self.those(lambda cell: id(cell) in chosen)
        if isinstance(pattern, Parameter):
            raise ArgumentTypeError(f"pattern {show(pattern)} is no cell; {self._owners([pattern])}")
        raise ArgumentTypeError(
            f"pattern {show(pattern)} cannot choose cells; give a path, a Cell class, a Cell, "
            "a callable (path, cell) -> bool, or a list of these"
        )

    def no_match(self, pattern: Any) -> NoMatchError:
        if isinstance(pattern, NamePattern):
            parameters = _Parameters(self.net)
            only = [parameters.things[item] for item in sorted(parameters.found(pattern))]
            return self.names.no_match(pattern, self._owners(only) if only else "")
        if isinstance(pattern, nn.Cell):
            return _nothing(pattern, self.names, "it stands nowhere in this network; give a path")
        kinds = dict.fromkeys(type(cell).__name__ for _, cell in self.everywhere)
        return _nothing(pattern, self.names, f"the cells here are {', '.join(kinds)}")

    def _owners(self, parameters: list[Parameter]) -> str:
        """Return the remedy for a pattern that names parameters: the cells that own them."""
        wanted = {id(parameter) for parameter in parameters}
        owners = dict.fromkeys(
            place.path.rpartition(".")[0]
            for place in places(self.net)
            if id(place.parameter) in wanted
        )
        paths = [repr(path) for path in owners if path]
        if not paths:
            return "only cells can be chosen here; for the network itself write StopGradient(net)"
        return f"it names a parameter; give its cell {' or '.join(paths[:3])}"

    def outermost(self, chosen: set[int]) -> set[int]:
        """Drop the cells that stand nowhere but inside other chosen ones."""
        chosen_paths = {path for item in chosen for path in self.paths[item]}
        return {
            item
            for item in chosen
            if not all(_inside(path, chosen_paths) for path in self.paths[item])
        }

    def check_outside(self, matches: Sequence[Match], chosen: set[int]) -> None:
        """Refuse a `!` for a cell that stays inside a chosen one: it would change nothing there."""
        chosen_paths = {path for item in chosen for path in self.paths[item]}
        for pattern, negated, found in matches:
            for path in (path for item in found - chosen for path in self.paths[item]):
                if negated and _inside(path, chosen_paths):
                    raise NoMatchError(
                        f"pattern {show(pattern)} takes away {path!r}, which stands inside a chosen "
                        "cell; choose the cells beside it instead of the one around it",
                        pattern=show(pattern),
                    )


def _inside(path: str, chosen: set[str]) -> bool:
    end = path.rfind(".")
    while end > 0:
        if path[:end] in chosen:
            return True
        end = path.rfind(".", 0, end)
    return False


def network_itself(given: str) -> ArgumentError:
    """Return the error for a pattern that stands for the whole network where cells are chosen."""
    return ArgumentError(
        f"pattern {given} is the network itself; wrap it from outside: net = StopGradient(net)"
    )


def _nothing(pattern: object, names: Names, remedy: str) -> NoMatchError:
    return NoMatchError(
        f"pattern {show(pattern)} matched none of {names.count} {names.kind}; {remedy}",
        pattern=pattern,
    )
