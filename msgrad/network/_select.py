"""A selection: the parameters, or the cells, of a network that patterns choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

from mindspore import Parameter, nn

from msgrad.errors import ArgumentError, NoMatchError
from msgrad.network._match import CellMatcher, ParameterMatcher, leaves, show
from msgrad.network._names import Match, last_wins
from msgrad.network._tree import collector_paused

Test: TypeAlias = Callable[[str, Parameter], bool]
Pattern: TypeAlias = "str | type[nn.Cell] | Test | Parameter | nn.Cell | Sequence[Pattern]"
"""What takes parameters: a name or a shape of names, a Cell class or Cell, a function, a list."""
CellPattern: TypeAlias = (
    "str | type[nn.Cell] | Callable[[str, nn.Cell], bool] | nn.Cell | Sequence[CellPattern]"
)
"""What takes cells: a path or a shape of paths, a Cell class, a function, a Cell, a list."""


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

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return where a parameter stands.

        Raises:
            ArgumentError: It is not in the selection.
        """
        for position in range(*slice(start, stop).indices(len(self))):
            if self._parameters[position] is value:
                return position
        raise ArgumentError(f"value {show(value)} is none of {len(self)} parameters; see .names")

    def count(self, value: Any) -> int:
        """Return 1 where the parameter is in the selection, otherwise 0."""
        return int(value in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selection):
            return NotImplemented
        return [id(parameter) for parameter in self] == [id(parameter) for parameter in other]

    def __hash__(self) -> int:
        return hash(tuple(id(parameter) for parameter in self))

    def __repr__(self) -> str:
        return f"Selection({self.names})"


@collector_paused()
def select(
    net: nn.Cell, *patterns: Pattern, exclude: Pattern = (), missing_ok: bool = False
) -> Selection:
    """Choose parameters of a network.

    A string is a name or any path to a parameter or a cell: ``"conv1"``, ``"*.bias"``,
    ``"layers.{0..5}"``, ``"re:fc[12]"``; with ``!`` in front it takes away. A Cell class chooses
    what its instances own directly, a callable ``(name, parameter) -> bool`` what it is true for.
    Parameters, Cells, selections and lists stand for what they hold. The last match wins.

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
    matcher = ParameterMatcher(net)
    count = matcher.names.count
    matches = matcher.matches(patterns, missing_ok=missing_ok)
    chosen = last_wins(matches, count, missing_ok=missing_ok)
    if list(leaves(exclude)):
        taken = matcher.matches(exclude, missing_ok=missing_ok)
        if not missing_ok:
            _check_taken(taken, chosen)
        chosen -= last_wins(taken, count, missing_ok=missing_ok)
    return Selection([matcher.members[item] for item in sorted(chosen)])


@collector_paused()
def select_one(net: nn.Cell, name: str | Parameter) -> Parameter:
    """Return the parameter of a name, or at a path.

    Raises:
        NoMatchError: There is none.
        ArgumentError: There are several.
    """
    found = select(net, name)
    if len(found) > 1:
        raise ArgumentError(
            f"name {name!r} is that of {len(found)} parameters; give one, such as "
            f"{found.names[0]!r}"
        )
    return found[0]


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
    matcher = CellMatcher(net)
    matches = matcher.matches(patterns, missing_ok=missing_ok)
    if not nested and not missing_ok:
        matcher.check_outside(matches)
    chosen = last_wins(matches, matcher.names.count, missing_ok=missing_ok)
    if not nested:
        chosen = matcher.outermost(chosen)
    wanted = {id(matcher.members[item]) for item in chosen}
    return [(path, cell) for path, cell in matcher.everywhere if id(cell) in wanted]


def _check_taken(taken: Sequence[Match], chosen: set[int]) -> None:
    for pattern, negated, found in taken:
        if not negated and not found & chosen:
            raise NoMatchError(
                f"exclude {show(pattern)} takes away none of {len(chosen)} chosen parameters; "
                "drop it, or choose more",
                pattern=pattern,
            )
