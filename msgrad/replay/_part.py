"""The frozen part of a network: the cells whose output for a sample never changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from msgrad.backend import Graph, compiled_graph, running_in
from msgrad.freezing import cannot_hold, forward_writes, is_held, is_norm, records_of
from msgrad.network import (
    cell_paths,
    children,
    core_of,
    every_cell,
    hidden,
    is_wrapper,
    one_walk,
    rolled_back,
    seeds_kept,
)
from msgrad.replay._taps import FILL, TRACE, Recorder, Tap
from msgrad.wrappers import CellWrapper, unwrap, wrap, wrapped

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
            # and what stands in its wrappers
            opened.add(id(core_of(cell)))
        if not bad:
            return {cell: call[0] for cell, call in calls.items() if call}


def _candidates(
    net: nn.Cell, opened: Collection[int], refused: dict[str, str], paths: Mapping[int, str]
) -> Iterator[nn.Cell]:
    """List the outermost frozen cells, but for those that were opened."""
    records = records_of(net)
    seen: set[int] = set()
    stack = [net]
    while stack:
        cell = stack.pop()
        if id(cell) in seen:
            continue
        seen.add(id(cell))
        callable_ = type(cell).construct not in (nn.Cell.construct, nn.CellList.construct)
        if cell is not net and callable_ and id(core_of(cell)) not in opened:
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
        with rolled_back([net]), seeds_kept(), running_in(ms.PYNATIVE_MODE):
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


@one_walk()
def adapting(net: nn.Cell) -> list[Parameter]:
    """List what moves in a forward pass: statistics that adapt, and what a cell writes itself."""
    norms = (cell for cell in every_cell(net) if is_norm(cell) and not is_held(cell))
    moving = {id(p) for norm in norms for p in norm.__dict__["_params"].values()}
    moving |= forward_writes(net).keys()
    return [record.parameter for key, record in records_of(net).items() if key in moving]


@dataclass
class FrozenPart:
    """Taps around frozen cells, and why other frozen cells have none.

    Attributes:
        taps: The taps by the path of their cell, in network order; those not needed are cut off
            from the loss by others.
        refused: The path of a frozen cell, and why its output cannot be kept.
    """

    net: nn.Cell
    taps: dict[str, Tap] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._fixed = self._fixed_cells()

    def _fixed_cells(self) -> list[int]:
        """List the cells by id that train no weight of their own; wrappers come and go."""
        records = records_of(self.net)
        return [
            id(cell)
            for cell in every_cell(self.net)
            if not is_wrapper(cell)
            if not any(records[id(p)].trains for p in cell._params.values() if p is not None)
        ]

    @one_walk()
    def is_whole(self) -> bool:
        """Whether every tap stands, and no cell was exchanged but for those that train."""
        there = set(map(id, standing(self.net, Tap).values()))
        return there >= set(map(id, self.taps.values())) and self._fixed == self._fixed_cells()

    @property
    def needed(self) -> list[Tap]:
        """The taps that the rest of the network reads."""
        return [tap for tap in self.taps.values() if tap.needed]

    def still_frozen(self) -> list[str]:
        """Name the cells that are not frozen any more, or adapt."""
        records = records_of(self.net)
        return [path for path, tap in self.taps.items() if why_not(tap.cell, records)]

    @one_walk()
    def weights(self) -> list[Parameter]:
        """List all that does not change in training, whether it stands in a tapped cell or not."""
        moving = set(map(id, adapting(self.net)))
        return [
            record.parameter
            for key, record in records_of(self.net).items()
            if not record.trains and key not in moving
        ]

    def do(self, what: int) -> None:
        """Set all taps to one state."""
        for tap in self.taps.values():
            tap.do(what)

    def close(self) -> None:
        """Take the taps out of the network."""
        if standing(self.net, Tap):
            unwrap(self.net, kind=Tap)
        self.taps = {}


def find_frozen_part(net: nn.Cell, inputs: Sequence[Any], rows: int) -> FrozenPart:
    """Put taps around the frozen cells whose output can be kept; nothing else changes.

    Cells are tried from the outside in: where one is called twice or does not give one tensor with
    a row per sample, the cells in it are tried.
    """
    part = FrozenPart(net)
    calls = called_once(net, inputs, rows, part.refused)
    if not calls:
        return part
    wrap(net, *calls, wrapper=Tap)
    part.taps = standing(net, Tap)
    try:
        for tap in part.taps.values():
            args, kwargs, out = calls[tap.cell]
            tap.set_buffer(new_buffer(out.shape, out.dtype))
            tap.make_sinks(len(args) + len(kwargs))
        # without those that change, others may be needed
        while _drop_dependent(part, graph := _traced(part, inputs)) or _drop_reading(part, inputs):
            pass
        _find_needed(part, graph)
    except BaseException:
        part.close()
        raise
    return part


def new_buffer(shape: Sequence[int], dtype: Any) -> Parameter:
    """Return a Parameter for the rows of one batch."""
    return hidden("replay", np.zeros(shape, np.float32), dtype)


def _traced(part: FrozenPart, inputs: Sequence[Any]) -> Graph:
    part.do(TRACE)
    return compiled_graph(part.net, *inputs)


def _drop_dependent(part: FrozenPart, graph: Graph) -> bool:
    """Take off the taps whose cell gets something that may change; say whether there was any."""
    changing = _changing(part)
    changing |= {n.inputs[0] for n in graph.nodes if n.op_type.startswith("Assign")}
    by_sink = {s.name: path for path, tap in part.taps.items() for s in tap.sinks}
    by_buffer = {tap.buffer.name: path for path, tap in part.taps.items()}
    reads: dict[str, set[str]] = {path: set() for path in part.taps}
    for node in graph.nodes:
        if node.op_type == "Assign" and node.inputs[0] in by_sink:
            reads[by_sink[node.inputs[0]]] |= graph.sources(node.inputs[1])
    dependent: dict[str, str] = {}
    for path, names in reads.items():
        if names & changing:
            dependent[path] = f"it comes after {min(names & changing)!r}, which may change"
        elif any(graph.hides(name) for name in names):
            dependent[path] = "a branch or loop in the graph hides what it depends on"
    while True:
        more = {
            path: f"it comes after {by_buffer[name]!r}, which changes"
            for path, names in reads.items()
            for name in names & by_buffer.keys()
            if path not in dependent and by_buffer[name] in dependent
        }
        if not more:
            break
        dependent.update(more)
    return _drop(part, dependent)


def _changing(part: FrozenPart) -> set[str]:
    names = {str(r.parameter.name) for r in records_of(part.net).values()}
    return names - {str(p.name) for p in part.weights()}


def _drop_reading(part: FrozenPart, inputs: Sequence[Any]) -> bool:
    """Take off the taps whose cell reads what may change past its arguments; say as above.

    It may hold another cell or a weight in a plain list, or get a dict.
    """
    if not part.taps:
        return False
    part.do(FILL)
    graph, changing = compiled_graph(part.net, *inputs), _changing(part)
    by_buffer = {tap.buffer.name: path for path, tap in part.taps.items()}
    found: dict[str, str] = {}
    for node in graph.nodes:
        if node.op_type == "Assign" and node.inputs[0] in by_buffer:
            names = graph.sources(node.inputs[1]) & changing
            if names:
                found[by_buffer[node.inputs[0]]] = f"it reads {min(names)!r}, which may change"
    return _drop(part, found)


def _drop(part: FrozenPart, why: Mapping[str, str]) -> bool:
    if why:
        part.refused.update(why)
        kept = {p: t for p, t in part.taps.items() if p not in why}
        unwrap(part.net, *(part.taps[path].cell for path in why), kind=Tap)
        part.taps = kept
    return bool(why and part.taps)


def _find_needed(part: FrozenPart, graph: Graph) -> None:
    """Mark the taps that what the network gives is made from."""
    read = {name for output in graph.outputs for name in graph.sources(output)}
    # where a branch hides what it reads, all are kept
    hidden_reads = any(graph.hides(name) for name in read)
    for tap in part.taps.values():
        tap.__dict__["needed"] = hidden_reads or tap.buffer.name in read
