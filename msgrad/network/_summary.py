"""A summary: how many weights of a network may move, and how many bytes they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mindspore import Parameter, nn

from msgrad._text import short_number
from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.network._tree import every_cell, layers_of, paths_of, places

# What MindSpore and msgrad call the one child of a cell that only adds a loss or a cast.
_SHELLS = ("network", "_backbone", "net")


@dataclass(frozen=True)
class CellSummary:
    """The weights under one cell at the top of a network.

    Attributes:
        cell: The path of the cell; ``""`` for what the network itself owns.
        trainable: Elements that may move.
        total: Elements.
        trainable_bytes: Bytes that may move.
        total_bytes: Bytes.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> mg.summary(nn.SequentialCell(nn.Dense(4, 8), nn.ReLU())).rows[0].total_bytes
        160
    """

    cell: str
    trainable: int
    total: int
    trainable_bytes: int
    total_bytes: int


@dataclass(frozen=True, repr=False)
class Summary:
    """What may move in a network, in total and for each cell at the top.

    Attributes:
        rows: One for each cell at the top that holds parameters, in network order.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> mg.summary(net).untrainable_bytes
        0
    """

    rows: tuple[CellSummary, ...]

    @property
    def trainable(self) -> int:
        """Elements that may move."""
        return sum(row.trainable for row in self.rows)

    @property
    def untrainable(self) -> int:
        """Elements that may not move."""
        return self.total - self.trainable

    @property
    def total(self) -> int:
        """Elements, each parameter once."""
        return sum(row.total for row in self.rows)

    @property
    def trainable_bytes(self) -> int:
        """Bytes of what may move."""
        return sum(row.trainable_bytes for row in self.rows)

    @property
    def untrainable_bytes(self) -> int:
        """Bytes of what may not move."""
        return self.total_bytes - self.trainable_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes, each parameter once."""
        return sum(row.total_bytes for row in self.rows)

    def __repr__(self) -> str:
        head = (
            f"trainable {short_number(self.trainable)} of {short_number(self.total)} "
            f"({_percent(self.trainable, self.total)})"
        )
        return "\n".join([head, *_aligned([_texts(row) for row in self.rows])])


def summary(net: nn.Cell, *, depth: int = 1) -> Summary:
    """Count the weights that may move and those that may not, for each cell of a depth.

    For a network they are told apart by `requires_grad`. For a train cell or a ``TrainStep`` they
    are what its optimizer has, whatever the flags say, but for what a `HoldOptimizer` keeps; only
    its network is counted. Norm
    statistics count as weights that may not move.

    Args:
        net: Network, train cell or ``TrainStep``; it is not changed.
        depth: How deep the cells lie that have a row; 1 is the top. What ends before has its own.

    Returns:
        Counts in elements and bytes; printed, it is a small table.

    Raises:
        ArgumentTypeError: ``net`` is no Cell.
        ArgumentError: ``depth`` is below 1.
        ConflictError: Two different parameters have one name.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> for parameter in net[0].get_parameters():
        ...     parameter.requires_grad = False
        >>> mg.summary(net)
        trainable 18 of 58 (31.0 %)
          0   0 of 40    0.0 %   0 B of 160 B
          2  18 of 18  100.0 %  72 B of  72 B
    """
    if not isinstance(net, nn.Cell):
        raise ArgumentTypeError(f"net {net!r} is no Cell; give the network or its train cell")
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise ArgumentError(
            f"depth {depth!r} is no depth; give 1 for the cells at the top, or more"
        )
    moves = _rule(net)
    network = inner_network(net)
    own = layers_of(network)
    first = {place.parameter: place for place in reversed(places(network))}
    tops: dict[str, list[Parameter]] = {}
    for parameter in paths_of(network):
        place = first[parameter]
        cell = "" if place.owner in own else place.path.rpartition(".")[0]
        top = ".".join(cell.split(".")[:depth])
        tops.setdefault(top, []).append(parameter)
    return Summary(tuple(_row(top, inside, moves) for top, inside in tops.items()))


def _rule(net: nn.Cell) -> Callable[[Parameter], int]:
    """Return how many elements of a parameter move: by the optimizer, or else by the flag."""
    optimizer = net._cells.get("optimizer")
    if optimizer is None:
        return lambda parameter: parameter.size if parameter.requires_grad else 0
    # A TrainStep answers for the flags of now, its optimizer for those of the last call.
    held = getattr(net, "trainable", None)
    names = set(held if held is not None else (p.name for p in optimizer.parameters))
    # what a HoldOptimizer keeps
    holds = [cell for cell in every_cell(optimizer) if hasattr(type(cell), "held_rows")]
    names -= {name for hold in holds for name in hold.held}
    rows = {name: len(kept) for hold in holds for name, kept in hold.held_rows.items()}

    def moving(parameter: Parameter) -> int:
        if parameter.name not in names:
            return 0
        kept = rows.get(parameter.name, 0)
        return parameter.size - kept * (parameter.size // parameter.shape[0] if kept else 0)

    return moving


def inner_network(net: nn.Cell) -> nn.Cell:
    """Return the network inside a train cell, a loss cell or a cast, if it holds all parameters."""
    if net._cells.get("optimizer") is not None and net._cells.get("network") is not None:
        net = net._cells["network"]
    while True:
        tops = {place.path.partition(".")[0] for place in places(net)}
        shell = next((key for key in _SHELLS if tops == {key} and key in net._cells), None)
        if shell is None:
            return net
        net = net._cells[shell]


def _row(cell: str, inside: list[Parameter], moves: Callable[[Parameter], int]) -> CellSummary:
    moving = [(moves(parameter), parameter) for parameter in inside]
    return CellSummary(
        cell,
        trainable=sum(count for count, _ in moving),
        total=sum(parameter.size for parameter in inside),
        trainable_bytes=sum(count * p.nbytes // max(p.size, 1) for count, p in moving),
        total_bytes=sum(parameter.nbytes for parameter in inside),
    )


def _texts(row: CellSummary) -> tuple[str, ...]:
    return (
        row.cell or "(itself)",
        short_number(row.trainable),
        short_number(row.total),
        _percent(row.trainable, row.total),
        short_number(row.trainable_bytes, "B"),
        short_number(row.total_bytes, "B"),
    )


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"  {name:{width[0]}}  {held:>{width[1]}} of {all_:>{width[2]}}  {share:>{width[3]}}"
        f"  {held_bytes:>{width[4]}} of {all_bytes:>{width[5]}}"
        for name, held, all_, share, held_bytes, all_bytes in rows
    ]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole if whole else 0:.1f} %"
