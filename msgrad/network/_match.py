"""What patterns of every kind reach in a network: among its parameters, or among its cells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from mindspore import Parameter, nn

from msgrad.errors import ArgumentError, ArgumentTypeError, ConflictError, NoMatchError
from msgrad.network._names import NO_PATTERNS, Match, Names, last_wins
from msgrad.network._pattern import NamePattern, parse
from msgrad.network._tree import Place, cell_paths, layers_of, named_places, places

Member = TypeVar("Member", Parameter, nn.Cell)


class Matcher(ABC, Generic[Member]):
    """What patterns reach among the things of one network; subclasses know the kinds of pattern."""

    def __init__(self, net: nn.Cell, members: list[Member], names: Names) -> None:
        self.net = net
        self.members = members
        self.names = names

    def parse(self, pattern: object) -> object:
        """Return a string as a parsed pattern, everything else as it is."""
        return parse(pattern, self.names) if isinstance(pattern, str) else pattern

    @abstractmethod
    def found(self, pattern: Any) -> set[int]:
        """Return the positions of the things that one parsed pattern reaches."""

    @abstractmethod
    def no_match(self, pattern: Any) -> NoMatchError:
        """Return the error for a pattern that reaches nothing."""

    def matches(self, patterns: object, *, missing_ok: bool) -> list[Match]:
        """Return what each pattern of a list reaches, the lists in it spliced in.

        Raises:
            ArgumentError: There is no pattern.
            NoMatchError: A pattern reaches nothing and `missing_ok` is false.
        """
        # All are parsed before any is matched, so that a malformed one is reported first.
        parsed = [self.parse(pattern) for pattern in leaves(patterns)]
        if not parsed:
            raise ArgumentError(NO_PATTERNS)
        matches = []
        for pattern in parsed:
            found = self.found(pattern)
            if not found and not missing_ok:
                raise self.no_match(pattern)
            negated = isinstance(pattern, NamePattern) and pattern.negated
            matches.append(Match(pattern, negated, found))
        return matches

    def those(self, wanted: Callable[[Member], object]) -> set[int]:
        """Return the positions of the things for which a test is true."""
        return {item for item, member in enumerate(self.members) if wanted(member)}


def leaves(patterns: Any) -> Iterator[object]:
    """Splice lists and selections; an empty selection stays, a pattern that matches nothing."""
    if _is_list(patterns) and (len(patterns) > 0 or isinstance(patterns, (list, tuple))):
        for pattern in patterns:
            yield from leaves(pattern)
    else:
        yield patterns


def _is_list(pattern: object) -> bool:
    return isinstance(pattern, Sequence) and not isinstance(pattern, (str, bytes))


def _checked(net: object) -> nn.Cell:
    if not isinstance(net, nn.Cell):
        raise ArgumentTypeError(f"net {net!r} is no Cell; give the network, then the patterns")
    return net


def show(pattern: Any) -> str:
    """Return how a pattern of any kind is written in a message."""
    if isinstance(pattern, Parameter):
        return f"Parameter {pattern.name!r}"
    if isinstance(pattern, nn.Cell):
        return f"{type(pattern).__name__}(...)"
    return getattr(pattern, "__qualname__", None) or repr(pattern)


class NetPattern(ABC):
    """A pattern that looks at a whole network to say which parameters it chooses."""

    @abstractmethod
    def chosen(self, net: nn.Cell) -> Iterable[Parameter]:
        """Return what it chooses among the parameters of a network."""


class ParameterMatcher(Matcher[Parameter]):
    """What patterns reach among parameters, by `Parameter.name` and by every path."""

    def __init__(self, net: nn.Cell) -> None:
        named = named_places(_checked(net))
        names = Names(
            paths if name in paths else [name, *paths] for name, (_, paths) in named.items()
        )
        self.paths = [paths for _, paths in named.values()]
        super().__init__(net, [parameter for parameter, _ in named.values()], names)

    @cached_property
    def _at(self) -> dict[int, int]:
        """The position of each parameter by its id."""
        return {id(parameter): item for item, parameter in enumerate(self.members)}

    def found(self, pattern: Any) -> set[int]:
        """Return the positions of the parameters that one pattern reaches.

        Raises:
            ArgumentTypeError: It is of no kind that parameters are chosen by.
        """
        if isinstance(pattern, NamePattern):
            return self._named(pattern)
        if isinstance(pattern, Parameter):
            # a selection of many parameters comes here once for each
            return {self._at[id(pattern)]} if id(pattern) in self._at else set()
        if isinstance(pattern, NetPattern):
            return {self._at[id(parameter)] for parameter in pattern.chosen(self.net)}
        if _is_list(pattern):
            return set()
        if isinstance(pattern, type) and issubclass(pattern, nn.Cell):
            owned = {id(p.parameter) for p in places(self.net) if isinstance(p.owner, pattern)}
            return self.those(lambda parameter: id(parameter) in owned)
        if callable(pattern) and not isinstance(pattern, (type, nn.Cell)):
            return self.those(lambda parameter: pattern(parameter.name, parameter))
        if isinstance(pattern, nn.Cell):
            inside = set(map(id, pattern.get_parameters()))
            return self.those(lambda parameter: id(parameter) in inside)
        raise ArgumentTypeError(
            f"pattern {show(pattern)} cannot choose parameters; give a name, a Cell class, "
            "a callable (name, parameter) -> bool, a Parameter, a Cell, or a list of these"
        )

    @cached_property
    def _strays(self) -> set[int]:
        """The parameters whose names lie under the path of a cell in which they do not lie.

        MindSpore names what is appended to a `CellList` of one cell after that cell.
        """
        named = [(n, str(p.name)) for n, p in enumerate(self.members)]
        odd = [(n, name) for n, name in named if name not in self.paths[n]]
        cells = {path for path, _ in cell_paths(self.net)} if odd else set()
        return {
            n
            for n, name in odd
            for cell in (name[:end] for end, letter in enumerate(name) if letter == ".")
            if cell in cells and not any(path.startswith(f"{cell}.") for path in self.paths[n])
        }

    @cached_property
    def _by_path(self) -> Names:
        return Names(self.paths)

    def _named(self, pattern: NamePattern) -> set[int]:
        """Return what a string reaches; the path of a cell is no name of what lies elsewhere.

        Raises:
            ConflictError: It reaches some by their paths, and others by names that lie there.
        """
        found = self.names.found(pattern)
        if not found & self._strays:
            return found
        by_path = self._by_path.found(pattern)
        strays = sorted((found - by_path) & self._strays)
        if not by_path or not strays:
            return found
        if pattern.regex is None and pattern.literal not in self.names.at:
            return found - set(strays)
        other = self.members[strays[0]]
        raise ConflictError(
            f"pattern {pattern!r} matches {len(by_path)} parameters by their paths, such as "
            f"{self.paths[min(by_path)][0]!r}, and {len(strays)} that lie elsewhere by their names,"
            f" such as {other.name!r} at {self.paths[strays[0]][0]!r}; give each its path as name: "
            "for path, p in net.parameters_and_names(): p.name = path"
        )

    def no_match(self, pattern: Any) -> NoMatchError:
        """Return the error that says what there is instead."""
        if isinstance(pattern, NamePattern):
            return self.names.no_match(pattern)
        remedy = "give a name, or missing_ok=True"
        if isinstance(pattern, Parameter):
            remedy = "it belongs to another network; give its name in this one"
        elif isinstance(pattern, nn.Cell):
            remedy = "none of its parameters is in this network; give the path of a cell"
        elif isinstance(pattern, type):
            owners = dict.fromkeys(type(place.owner).__name__ for place in places(self.net))
            remedy = f"the cells that own parameters are {', '.join(owners)}"
        return _nothing(pattern, self.names, remedy)


class CellMatcher(Matcher[nn.Cell]):
    """What patterns reach among cells, by every path; the network itself is none of them."""

    def __init__(self, net: nn.Cell) -> None:
        self.everywhere = [(path, cell) for path, cell in cell_paths(_checked(net)) if path]
        paths: dict[nn.Cell, list[str]] = {}
        for path, cell in self.everywhere:
            paths.setdefault(cell, []).append(path)
        self.paths = list(paths.values())
        super().__init__(net, list(paths), Names(self.paths, "cells"))

    def parse(self, pattern: object) -> object:
        """Return a string as a parsed pattern, everything else as it is.

        Raises:
            ArgumentError: It stands for the network itself, or is malformed.
        """
        if pattern is self.net or (isinstance(pattern, str) and not pattern):
            raise ArgumentError(
                f"pattern {show(pattern)} is the network itself, which has no place to stand in; "
                "wrap it from outside: net = StopGradient(net)"
            )
        return super().parse(pattern)

    def found(self, pattern: Any) -> set[int]:
        """Return the positions of the cells that one pattern reaches.

        Raises:
            ArgumentTypeError: It is of no kind that cells are chosen by.
        """
        if isinstance(pattern, NamePattern):
            # What is chosen is the cell at that path; what is taken away is all inside it as well.
            return self.names.found(pattern, whole=not pattern.negated)
        if isinstance(pattern, nn.Cell):
            return self.those(lambda cell: any(layer is pattern for layer in layers_of(cell)))
        if isinstance(pattern, type) and issubclass(pattern, nn.Cell):
            return self.those(lambda cell: any(isinstance(c, pattern) for c in layers_of(cell)))
        if callable(pattern) and not isinstance(pattern, (type, Parameter)):
            chosen = {id(cell) for path, cell in self.everywhere if pattern(path, cell)}
            return self.those(lambda cell: id(cell) in chosen)
        if isinstance(pattern, Parameter):
            here = [place for place in places(self.net) if place.parameter is pattern]
            raise ArgumentTypeError(f"pattern {show(pattern)} is no cell; {_give_cells(here)}")
        raise ArgumentTypeError(
            f"pattern {show(pattern)} cannot choose cells; give a path, a Cell class, a Cell, "
            "a callable (path, cell) -> bool, or a list of these"
        )

    def no_match(self, pattern: Any) -> NoMatchError:
        """Return the error that says what there is instead."""
        if isinstance(pattern, NamePattern):
            where = places(self.net)
            index = Names([place.path, place.parameter.name] for place in where)
            named = sorted(index.found(pattern, whole=True))
            remedy = _give_cells([where[item] for item in named]) if named else ""
            return self.names.no_match(pattern, remedy)
        remedy = "give a path, or missing_ok=True"
        if isinstance(pattern, type):
            kinds = dict.fromkeys(type(cell).__name__ for _, cell in self.everywhere)
            remedy = f"the cells here are {', '.join(kinds)}"
        return _nothing(pattern, self.names, remedy)

    def outermost(self, chosen: set[int]) -> set[int]:
        """Drop the cells that stand nowhere but inside other chosen ones."""
        around = {path for item in chosen for path in self.paths[item]}
        return {
            item for item in chosen if any(not _outer(path, around) for path in self.paths[item])
        }

    def check_outside(self, matches: Sequence[Match]) -> None:
        """Refuse a `!` for a cell that stays inside a chosen one: it would change nothing there.

        Raises:
            NoMatchError: There is such a pattern.
        """
        chosen = last_wins(matches, self.names.count, missing_ok=True)
        around = {path for item in self.outermost(chosen) for path in self.paths[item]}
        for pattern, negated, found in matches:
            for path in (path for item in found - chosen for path in self.paths[item]):
                outer = _outer(path, around)
                if negated and outer:
                    raise NoMatchError(
                        f"pattern {show(pattern)} takes nothing away: {path!r} stands inside the "
                        f"chosen {outer!r}; choose '{outer}.*' instead of {outer!r}",
                        pattern=show(pattern),
                    )


def _outer(path: str, around: set[str]) -> str:
    """Return the nearest of the cells in `around` that a path lies in, or `""`."""
    end = path.rfind(".")
    while end > 0 and path[:end] not in around:
        end = path.rfind(".", 0, end)
    return path[: max(end, 0)]


def _give_cells(where: Sequence[Place]) -> str:
    """Return the remedy for a pattern that names parameters: the cells that own them."""
    owners = dict.fromkeys(place.path.rpartition(".")[0] for place in where)
    paths = [repr(path) for path in owners if path]
    if not paths:
        return "only cells can be chosen here; for the whole network write StopGradient(net)"
    return f"it names a parameter; give its cell {' or '.join(paths[:3])}"


def _nothing(pattern: object, names: Names, remedy: str) -> NoMatchError:
    return NoMatchError(
        f"pattern {show(pattern)} matched none of {names.count} {names.kind}; {remedy}",
        pattern=pattern,
    )
