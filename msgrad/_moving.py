"""What may have moved: trained by a step, changed by an update, or adapting beside the training."""

from __future__ import annotations

from collections.abc import Iterable

from mindspore import Parameter, nn

from msgrad._behaviour import wholly_frozen
from msgrad._cells import every_cell
from msgrad._claims import see, statistic_names


def note_moving(net: nn.Cell, weights: Iterable[Parameter]) -> None:
    """Note that these weights, and the statistics that adapt now, may move from here on."""
    records = see(net)
    for key in {id(weight) for weight in weights} | _adapting(net):
        records[key].has_moved = True


def may_have_moved(net: nn.Cell) -> list[Parameter]:
    """List the parameters that trained or adapted at some time, or would now, in network order.

    Examples:
        >>> from msgrad._freeze import freeze
        >>> net = nn.SequentialCell(nn.BatchNorm1d(2), nn.Dense(2, 1), nn.BatchNorm1d(1))
        >>> _ = freeze(net, "0", "2.gamma")
        >>> [p.name for p in may_have_moved(net)]
        ['1.weight', '1.bias', '2.moving_mean', '2.moving_variance', '2.beta']
    """
    adapting = _adapting(net)
    return [
        record.parameter
        for key, record in see(net).items()
        if record.has_moved or record.trains or key in adapting
    ]


def _adapting(net: nn.Cell) -> set[int]:
    """Return the ids of the running statistics that no freeze holds."""
    held = wholly_frozen(net)
    return {
        id(cell.__dict__["_params"][name])
        for cell in every_cell(net)
        if id(cell) not in held
        for name in statistic_names(cell)
        if cell.__dict__["_params"].get(name) is not None
    }
