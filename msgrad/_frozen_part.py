"""The frozen part of a network: the cells whose output for a sample never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mindspore import Parameter, nn

from msgrad._claims import see
from msgrad._frozen_cells import adapting, called_once, standing, why_not
from msgrad._graph import Graph, compiled_graph
from msgrad._hidden import hidden
from msgrad._taps import FILL, TRACE, Tap
from msgrad._wrap import unwrap, wrap


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

    @property
    def needed(self) -> list[Tap]:
        """The taps that the rest of the network reads."""
        return [tap for tap in self.taps.values() if tap.needed]

    def still_frozen(self) -> list[str]:
        """Name the cells that are not frozen any more, or adapt."""
        return [path for path, tap in self.taps.items() if why_not(tap.cell, see(self.net))]

    def weights(self) -> list[Parameter]:
        """List all that does not change in training, whether it stands in a tapped cell or not."""
        moving = {id(p) for cell in adapting(self.net) for p in cell.__dict__["_params"].values()}
        return [
            record.parameter
            for key, record in see(self.net).items()
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
    for tap in part.taps.values():
        args, kwargs, out = calls[tap.cell]
        tap.set_buffer(new_buffer(out.shape, out.dtype))
        tap.make_sinks(len(args) + len(kwargs))
    try:
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
    names = {str(r.parameter.name) for r in see(part.net).values()}
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
