"""Naming what a freeze does not hold: cells that nothing can hold, and norms frozen in part."""

from __future__ import annotations

import ast
import logging
import sys
import warnings
from collections.abc import Iterable, Sequence
from functools import cache

from mindspore import mint, nn, ops

from msgrad.freezing._behaviour import is_held
from msgrad.freezing._claims import INSTANCE_NORMS, Record, statistic_names
from msgrad.freezing._writes import free_write, own_methods
from msgrad.network import cell_paths, core_of, layers_of, resolved, source_of

logger = logging.getLogger("msgrad")
_DROPOUTS = [
    getattr(module, name)
    for module in (ops, mint.nn.functional)
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d")
    if hasattr(module, name)
]


def warn_unheld(net: nn.Cell, fresh: Iterable[nn.Cell]) -> None:
    """Warn of each cell newly held that goes on behaving as in training, with the reason."""
    left = {id(cell) for cell in fresh}
    if not left:
        return
    layers = [(path, layer) for path, cell in cell_paths(net) for layer in layers_of(cell)]
    for path, layer in layers:
        why = cannot_hold(layer) if id(layer) in left else None
        left.discard(id(layer))
        if why:
            said = f"frozen cell {path!r} ({type(layer).__name__}) cannot be held still: {why}"
            warnings.warn(said, stacklevel=_outside())


def _outside() -> int:
    """Return the level of the first caller that is not msgrad itself, for a warning made here."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("msgrad."):
        frame, level = frame.f_back, level + 1
    return level


def log_adapting(net: nn.Cell, touched: Sequence[Record], frozen: Sequence[Record]) -> None:
    """Name the norm cells touched that are frozen in part only: their statistics go on adapting."""
    sets = [{id(r.parameter) for r in records} for records in (touched, frozen)]
    adapting = {
        id(norm): path
        for path, norm in ((path, core_of(cell)) for path, cell in reversed(cell_paths(net)))
        if statistic_names(norm) and not is_held(norm)
        if all(any(id(p) in some for p in norm.__dict__["_params"].values()) for some in sets)
    }
    if adapting:
        names = list(adapting.values())[::-1]
        logger.warning(
            "%d norm cells are frozen in part only and go on adapting their statistics: %s",
            len(names),
            ", ".join(names[:5]) + (" …" if len(names) > 5 else ""),
        )


def cannot_hold(cell: nn.Cell) -> str | None:
    """Say why a frozen cell goes on behaving as in training, or None."""
    if isinstance(cell, INSTANCE_NORMS):
        return "InstanceNorm always normalises with the statistics of its input"
    if getattr(cell, "track_running_stats", None) is False:
        return "it keeps no running statistics to normalise with"
    where = _free_dropout(type(cell))
    if where:
        return f"{where} calls dropout without training=self.training"
    return free_write(cell)


@cache
def _free_dropout(kind: type[nn.Cell]) -> str:
    """Name the method and line that drop whatever the mode is; empty where there is none."""
    for method in own_methods(kind):
        source = source_of(method)
        if source is None:
            continue
        calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
        drops = [c for c in calls if _is_dropout(resolved(c.func, method.__globals__))]
        inside = {id(node) for call in drops for node in ast.walk(call)}
        if any(_reads_training(n) for n in ast.walk(source.tree) if id(n) not in inside):
            # `if self.training:` may stand around the call
            continue
        for call in drops:
            if not _depends(call):
                return f"line {source.offset + call.lineno} of {method.__qualname__}"
    return ""


def _is_dropout(called: object) -> bool:
    return any(called is dropout for dropout in _DROPOUTS)


def _depends(call: ast.Call) -> bool:
    """Whether `training` is given as anything but a constant."""
    given = [k.value for k in call.keywords if k.arg in ("training", None)] + call.args[2:3]
    return any(not isinstance(value, ast.Constant) or value.value is False for value in given)


def _reads_training(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "training"


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
