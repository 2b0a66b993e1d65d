"""Active dropout: cells that draw from a stream which MindSpore keeps inside the kernel."""

from __future__ import annotations

from mindspore import nn

from msgrad._paths import cell_paths

_KINDS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def active_dropout(net: nn.Cell) -> list[str]:
    """Name the paths of dropout cells that would drop something in the present mode."""
    return [
        path
        for path, cell in cell_paths(net)
        if isinstance(cell, _KINDS) and cell.training and _rate(cell) > 0
    ]


def _rate(cell: nn.Cell) -> float:
    # nn.Dropout still knows the older `keep_prob`, where 1 means that nothing is dropped
    p = getattr(cell, "p", None)
    return float(p if p is not None else 1.0 - cell.keep_prob)
