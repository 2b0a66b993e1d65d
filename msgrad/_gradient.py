"""The three verbs for the gradient through a cell: stop, scale, reverse; in place, by pattern."""

from __future__ import annotations

from mindspore import nn

from msgrad._scale import ReverseGradient, ScaleGradient, checked_scale
from msgrad._select import CellPattern
from msgrad._stop import StopGradient, checked_place
from msgrad._wrap import wrap


def stop_gradient(net: nn.Cell, *patterns: CellPattern, at: str = "output") -> list[str]:
    """Let no gradient pass through the cells that the patterns choose, in place.

    Args:
        net: Cell to change, in place.
        *patterns: Cells to stop at, see ``wrap``.
        at: Where the gradient stops, see ``StopGradient``.

    Returns:
        The paths of the cells, in network order.

    Raises:
        NoMatchError: A pattern matches no cell.
        ArgumentError: ``at`` is unknown, or a cell cannot be wrapped, see ``wrap``.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> mg.stop_gradient(nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2)), "0")
        ['0']
    """
    checked_place(at)
    return wrap(net, *patterns, wrapper=lambda cell: StopGradient(cell, at))


def scale_gradient(
    net: nn.Cell, *patterns: CellPattern, scale: float, at: str = "output"
) -> list[str]:
    """Multiply the gradient that passes through the cells that the patterns choose, in place.

    Args:
        net: Cell to change, in place.
        *patterns: Cells to wrap, see ``wrap``.
        scale: Factor, finite, 0 or more.
        at: Where the gradient is scaled, see ``ScaleGradient``.

    Returns:
        The paths of the cells, in network order.

    Raises:
        NoMatchError: A pattern matches no cell.
        ArgumentError: ``scale`` or ``at`` is unusable, or a cell cannot be wrapped, see ``wrap``.
        ArgumentTypeError: ``scale`` is no number.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> mg.scale_gradient(nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2)), "0", scale=0.1)
        ['0']
    """
    checked_scale(scale, "reverse_gradient")
    checked_place(at)
    return wrap(net, *patterns, wrapper=lambda cell: ScaleGradient(cell, scale, at))


def reverse_gradient(
    net: nn.Cell, *patterns: CellPattern, scale: float = 1.0, at: str = "input"
) -> list[str]:
    """Reverse the gradient that passes through the cells that the patterns choose, in place.

    Args:
        net: Cell to change, in place.
        *patterns: Cells to wrap, see ``wrap``.
        scale: The factor without its sign, finite, 0 or more.
        at: Where the gradient is reversed, see ``ReverseGradient``.

    Returns:
        The paths of the cells, in network order.

    Raises:
        NoMatchError: A pattern matches no cell.
        ArgumentError: ``scale`` or ``at`` is unusable, or a cell cannot be wrapped, see ``wrap``.
        ArgumentTypeError: ``scale`` is no number.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> mg.reverse_gradient(nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2)), "1")
        ['1']
    """
    checked_scale(scale, "scale_gradient")
    checked_place(at)
    return wrap(net, *patterns, wrapper=lambda cell: ReverseGradient(cell, scale, at))
