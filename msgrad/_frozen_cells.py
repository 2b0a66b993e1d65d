"""The frozen cells of a network whose output for a sample cannot change: found from outside in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import mindspore as ms
from mindspore import Tensor, nn

from msgrad._behaviour import is_held
from msgrad._cells import children, every_cell
from msgrad._claims import is_norm, see
from msgrad._mode import running_in
from msgrad._paths import cell_paths, is_wrapper
from msgrad._rehearsal import rehearsal, seeds_kept
from msgrad._taps import Recorder
from msgrad._unheld import cannot_hold
from msgrad._wrap import unwrap, wrap, wrapped
from msgrad._wrapper import CellWrapper

Wrapper = TypeVar("Wrapper", bound=CellWrapper)

# without parameters and the same in training and evaluation, so that they need no freeze
_PURE = ("mindspore.nn.layer.activation", "mindspore.nn.layer.pooling")
_PURE_TYPES = (nn.Flatten, nn.Identity)
_RANDOM = (nn.RReLU,)


def called_once(
    net: nn.Cell, inputs: Sequence[Any], rows: int, refused: dict[str, str]
) -> dict[nn.Cell, tuple[Any, ...]]:
    """Return the cells to keep the output of, each with its one call in an eager pass."""
    paths = {id(cell): path for path, cell in reversed(cell_paths(net))}
    opened: set[int] = set()
    while True:
        cells = list(_candidates(net, opened, refused, paths))
        calls = _record(net, cells, inputs) if cells else {}
        bad = {cell: why for cell in cells if (why := _why_not_call(calls[cell], rows))}
        for cell, why in bad.items():
            refused[paths[id(cell)]] = why
            opened.add(id(cell))
        if not bad:
            return {cell: call[0] for cell, call in calls.items() if call}


def _candidates(
    net: nn.Cell, opened: Collection[int], refused: dict[str, str], paths: Mapping[int, str]
) -> Iterator[nn.Cell]:
    """List the outermost frozen cells, but for those that were opened."""
    records = see(net)
    seen: set[int] = set()
    stack = [net]
    while stack:
        cell = stack.pop()
        if id(cell) in seen:
            continue
        seen.add(id(cell))
        callable_ = type(cell).construct not in (nn.Cell.construct, nn.CellList.construct)
        if cell is not net and callable_ and id(cell) not in opened:
            why = why_not(cell, records)
            if not why:
                yield cell
                continue
            if why != _TRAINS and id(cell) in paths:
                refused.setdefault(paths[id(cell)], why)
        stack.extend(reversed(children(cell)))


_TRAINS = "it is not frozen"


def why_not(cell: nn.Cell, records: Mapping[int, Any]) -> str:
    """Say why the output of a cell may change, empty where it cannot."""
    parts = every_cell(cell)
    for part in parts:
        own = [p for p in part.__dict__["_params"].values() if p is not None]
        known = [records[id(p)] for p in own if id(p) in records]
        if any(record.trains for record in known):
            return _TRAINS
        if not is_held(part) and is_norm(part):
            return "its statistics adapt"
        held_or_pure = is_held(part) or (not own and _is_pure(part)) or is_wrapper(part)
        if not held_or_pure:
            return "it is not wholly frozen by msgrad.freeze" if known else _TRAINS
        why = cannot_hold(part)
        if why:
            return why
    return ""


def _is_pure(cell: nn.Cell) -> bool:
    kind = type(cell)
    known = kind.__module__ in _PURE or isinstance(cell, _PURE_TYPES)
    return known and not isinstance(cell, _RANDOM)


# --- one eager pass


def _record(
    net: nn.Cell, cells: Sequence[nn.Cell], inputs: Sequence[Any]
) -> dict[nn.Cell, list[tuple[Any, ...]]]:
    wrap(net, *cells, wrapper=Recorder)
    try:
        with rehearsal([net]), seeds_kept(), running_in(ms.PYNATIVE_MODE):
            net(*inputs)
        return {recorder.cell: recorder.calls for recorder in standing(net, Recorder).values()}
    finally:
        unwrap(net, kind=Recorder)


def _why_not_call(calls: Sequence[tuple[Any, ...]], rows: int) -> str:
    if len(calls) > 1:
        return f"it is called {len(calls)} times in one pass"
    if not calls:
        return ""
    out = calls[0][2]
    if not isinstance(out, Tensor):
        return f"it gives a {type(out).__name__}, not one tensor"
    if out.ndim == 0 or out.shape[0] != rows:
        return f"it gives {tuple(out.shape)}, not a row for each of {rows} samples"
    return ""


def standing(net: nn.Cell, kind: type[Wrapper]) -> dict[str, Wrapper]:
    """Return the wrappers of a kind by the paths of their cells, each at its first place."""
    first: dict[Wrapper, str] = {}
    for path, wrapper in wrapped(net):
        if isinstance(wrapper, kind):
            first.setdefault(wrapper, path)
    return {path: wrapper for wrapper, path in first.items()}


def adapting(net: nn.Cell) -> list[nn.Cell]:
    """List the norms whose statistics move in training."""
    return [cell for cell in every_cell(net) if is_norm(cell) and not is_held(cell)]
