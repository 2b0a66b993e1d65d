"""What cuts a gradient: found in the forward graph, compiled once more with its stops made visible.

A stop leaves no operator in a compiled graph. Here `stop_gradient` is compiled as an operator that
stays and carries a mark; nothing is run. A weight from which every way to the loss leads through
a mark is cut by the first marks on these ways.
"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad._text import few
from msgrad.auditing._gradients import LossTimes
from msgrad.backend import Graph, Node, compiled_graph
from msgrad.freezing import own_methods
from msgrad.network import (
    cell_paths,
    children,
    closure_of,
    every_cell,
    inner_network,
    layers_of,
    one,
    resolved,
    source_of,
)
from msgrad.wrappers import StopGradient, made_by_no_grad

_AND = " and "


def stop_lines(cell: nn.Cell) -> list[str]:
    """List `file:line` of each stop in the methods of a cell and in the functions they call."""
    functions: list[Any] = list(own_methods(type(cell)))
    functions += [value for value in vars(cell).values() if isinstance(value, FunctionType)]
    seen: set[int] = set()
    return list(dict.fromkeys(line for f in functions for line in _lines(f, cell, seen)))


def _lines(function: FunctionType, cell: nn.Cell, seen: set[int]) -> Iterator[str]:
    function = inspect.unwrap(function)
    if id(function) in seen or function.__module__.startswith("mindspore."):
        return
    seen.add(id(function))
    if made_by_no_grad(function):
        inner = closure_of(function)["fn"]
        if isinstance(inner, FunctionType):
            yield _place(inner, inner.__code__.co_firstlineno)
        return
    source = source_of(function)
    if source is None:
        return
    names = {**function.__globals__, **closure_of(function), "self": cell}
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
        called = resolved(call.func, names)
        if _stops(called) or (isinstance(call.func, ast.Attribute) and call.func.attr == "detach"):
            yield _place(function, source.offset + call.lineno)
        elif isinstance(called, FunctionType):
            yield from _lines(called, cell, seen)


def _stops(called: Any) -> bool:
    return called is ops.stop_gradient or (
        isinstance(called, ops.Primitive) and called.name == "StopGradient"
    )


def _place(function: FunctionType, line: int) -> str:
    return f"{os.path.basename(function.__code__.co_filename)}:{line}"


_MARK = "msgrad_stop"
# Operators whose derivative is zero or none; Cast may be one, to an integer.
_FLAT = frozenset(
    (
        *("Argmax", "Argmin", "ArgMaxWithValue", "ArgMinWithValue", "ArgMaxExt", "ArgMinExt"),
        *("Sign", "Round", "Floor", "Ceil", "Rint", "Trunc", "FloorDiv", "Heaviside", "OneHot"),
        *("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "IsFinite", "IsNan"),
        *("LogicalNot", "LogicalAnd", "LogicalOr", "ZerosLike", "OnesLike"),
    )
)


@dataclass(frozen=True)
class Cut:
    """Why no gradient reaches a weight.

    Attributes:
        text: What cuts it, as the end of a sentence.
        stopped: Whether every way is cut by a stop of msgrad's own, so that it is meant.
    """

    text: str
    stopped: bool = False


def cuts(
    loss: nn.Cell, names: Sequence[str], network: nn.Cell, inputs: Sequence[object]
) -> dict[str, Cut]:
    """Say of each weight that no gradient reaches what cuts it; what is not found is left out."""
    cell = LossTimes(loss)
    with _marked_stops(cell) as wrappers:
        graph = compiled_graph(cell, one(), *inputs)
    scopes = _Scopes(cell, network, wrappers)
    found = {}
    for name, blocks in _first_blocks(graph, names).items():
        cut = _why(name, blocks, graph, scopes)
        if cut is not None:
            found[name] = cut
    return found


class _Scopes:
    """Finds the cell that an operator stands in."""

    def __init__(self, root: nn.Cell, network: nn.Cell, wrappers: Mapping[str, nn.Cell]) -> None:
        self._root = root
        self._wrappers = wrappers
        self._paths = {
            id(layer): path
            for path, top in cell_paths(inner_network(network))
            for layer in layers_of(top)
        }
        # a cell keeps the scope that its first graph gave it, whatever the root of that was
        self._cells = {cell.get_scope(): cell for cell in every_cell(root)}

    def wrapper(self, node: Node) -> nn.Cell | None:
        """Return the StopGradient that put a mark."""
        return next((self._wrappers[a] for a in node.attributes if a in self._wrappers), None)

    def cell(self, node: Node) -> nn.Cell:
        """Return the innermost known cell around an operator."""
        scope = node.scope
        while scope and scope not in self._cells:
            scope = scope.rpartition("/")[0]
        return self._cells.get(scope, self._root)

    def where(self, cell: nn.Cell) -> str:
        """Return class and place of a cell, as the user names them."""
        path = self._paths.get(id(cell), "")
        return f"{type(cell).__name__} at {path!r}" if path else type(cell).__name__

    def with_bprop(self, nodes: Iterable[Node]) -> list[nn.Cell]:
        """List the cells with a backward of their own, around operators or else anywhere."""
        for cells in ([self.cell(node) for node in nodes], every_cell(self._root)):
            own = {id(c): c for c in cells if _has_bprop(c)}
            if own:
                return list(own.values())
        return []


def _has_bprop(cell: nn.Cell) -> bool:
    return getattr(type(cell), "bprop", None) is not None and "msgrad" not in type(cell).__module__


def _why(name: str, blocks: list[Node] | None, graph: Graph, scopes: _Scopes) -> Cut | None:
    if blocks is None:
        if _hides_calls(graph):
            return Cut("a tensor-dependent `if` or loop decides, which these inputs do not take")
        if name in graph.parameters:
            return Cut("what is computed from it does not lead to the loss")
        return Cut("no cell of the forward pass reads it")
    if not blocks:
        own = [scopes.where(cell) for cell in scopes.with_bprop(_on_way(graph, name))]
        return Cut(f"the bprop of {few(own, 3, ' and ')} gives nothing back") if own else None
    texts = dict.fromkeys(_text(node, scopes) for node in blocks)
    ours = all(scopes.wrapper(node) is not None for node in blocks)
    return Cut(f"{few(list(texts), 3, _AND)} cuts it off", stopped=ours)


def _text(node: Node, scopes: _Scopes) -> str:
    wrapper = scopes.wrapper(node)
    if wrapper is not None:
        return scopes.where(wrapper)
    cell = scopes.cell(node)
    if _MARK not in node.attributes:
        return f"the operator {node.op_type} in {scopes.where(cell)}"
    # what a cell returns last may bear the scope of the cell around it
    for candidate in (cell, *children(cell)):
        lines = stop_lines(candidate)
        if lines:
            return f"stop_gradient in {scopes.where(candidate)}, {' or '.join(lines)},"
    return f"stop_gradient in {scopes.where(cell)}"


# --- the graph


def _hides_calls(graph: Graph) -> bool:
    """Whether a subgraph is called, which stands in the graph without a name."""
    return any(graph.hides(name) for node in graph.nodes for name in node.inputs)


def _first_blocks(graph: Graph, names: Sequence[str]) -> dict[str, list[Node] | None]:
    """Return for each weight the first blocks on its ways to the loss; None where there is no way.

    A block is a marked stop, or an operator without a derivative.
    """
    leads = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.name in leads:
            leads.update(node.value_inputs)
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.name in leads:
            for name in node.value_inputs:
                readers.setdefault(name, []).append(node)
    blocks: dict[str, dict[str, Node]] = {}
    # from the end, so that what reads a value is done before the value
    for name in [node.name for node in reversed(graph.nodes)] + list(names):
        blocks[name] = {}
        for reader in readers.get(name, ()):
            blocks[name].update({reader.name: reader} if _blocks(reader) else blocks[reader.name])
    return {name: list(blocks[name].values()) if name in leads else None for name in names}


def _blocks(node: Node) -> bool:
    return _MARK in node.attributes or node.op_type in _FLAT


def _on_way(graph: Graph, name: str) -> list[Node]:
    """Return the operators that a weight leads to."""
    reached = {name}
    found = []
    for node in graph.nodes:
        if reached & set(node.value_inputs):
            reached.add(node.name)
            found.append(node)
    return found


# --- the mark


@contextmanager
def _marked_stops(root: nn.Cell) -> Iterator[dict[str, nn.Cell]]:
    """Let what is compiled meanwhile have an operator with a mark in the place of each stop.

    Gives the attribute by which the mark of each StopGradient is known.
    """
    cells = every_cell(root)
    wrappers = {f"{_MARK}_{n}": c for n, c in enumerate(cells) if isinstance(c, StopGradient)}
    places = [ops.stop_gradient.__globals__, *(cell.__dict__ for cell in cells)]
    changed = [(p, k, v) for p in places for k, v in list(p.items()) if _is_stop(v)]
    for place, key, _ in changed:
        place[key] = _marked
    for mark, wrapper in wrappers.items():
        wrapper.__dict__["_one"] = _marker(mark)
    try:
        yield wrappers
    finally:
        for place, key, value in changed:
            place[key] = value
        for wrapper in wrappers.values():
            del wrapper.__dict__["_one"]


def _is_stop(value: Any) -> bool:
    return isinstance(value, ops.Primitive) and value.name == "StopGradient"


def _marker(mark: str) -> Callable[[Any], Any]:
    # any operator of the same shape and type that the compiler does not simplify
    operator = ops.Sinh().add_prim_attr(_MARK, True).add_prim_attr(mark, True)

    def marked(value: Any) -> Any:
        if isinstance(value, Tensor):
            return operator(value) if value.dtype in mstype.float_type else value
        return value

    return marked


_mark_one = _marker(_MARK)


def _marked(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple([_marked(item) for item in value])
    if isinstance(value, list):
        return [_marked(item) for item in value]
    return _mark_one(value)
