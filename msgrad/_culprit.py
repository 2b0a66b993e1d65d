"""What cuts a gradient: found in the forward graph, compiled once more with its stops made visible.

A stop leaves no operator in a compiled graph. Here `stop_gradient` is compiled as an operator that
stays and carries a mark; nothing is run. A weight from which every way to the loss leads through
a mark is cut by the first marks on these ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad._cells import every_cell
from msgrad._gradients import LossTimes
from msgrad._graph import Graph, Node, compiled_graph
from msgrad._paths import cell_paths, is_wrapper, layers_of
from msgrad._reach import one
from msgrad._stopline import stop_lines
from msgrad._wrapper import CellWrapper

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
    with _marked_stops(cell):
        graph = compiled_graph(cell, one(), *inputs)
    paths = {id(layer): path for path, top in cell_paths(network) for layer in layers_of(top)}
    found = {}
    for name, blocks in _first_blocks(graph, names).items():
        cut = _why(name, blocks, graph, _Scopes(cell, paths))
        if cut is not None:
            found[name] = cut
    return found


class _Scopes:
    """Finds the cell that an operator stands in."""

    def __init__(self, root: nn.Cell, paths: Mapping[int, str]) -> None:
        self._root = root
        self._paths = paths

    def cells(self, scope: str) -> list[nn.Cell]:
        """Return the cells around an operator, the innermost last."""
        found = [self._root]
        for segment in scope.split("/")[1:]:
            child = found[-1]._cells.get(segment.rpartition("-")[0])
            if child is None:
                break
            found.append(child)
        return found

    def path(self, cell: nn.Cell) -> str:
        """Return where a cell stands, as the user names it."""
        return self._paths.get(id(cell), "")

    def with_bprop(self, scopes: Iterable[str]) -> list[nn.Cell]:
        """List the cells with a backward of their own, around operators or else anywhere."""
        around = [cell for scope in scopes for cell in self.cells(scope)]
        for cells in (around, every_cell(self._root)):
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
        own = [
            f"{type(c).__name__} at {scopes.path(c)!r}"
            for c in scopes.with_bprop(_on_way(graph, name))
        ]
        return Cut(f"the bprop of {_few(own)} gives nothing back") if own else None
    texts = dict.fromkeys(_text(node, scopes) for node in blocks)
    wrappers = [_wrapper(node, scopes) for node in blocks]
    return Cut(f"{_few(list(texts))} cuts it off", stopped=all(wrappers))


def _wrapper(node: Node, scopes: _Scopes) -> CellWrapper | None:
    """Return the wrapper of msgrad's own that a stop belongs to."""
    cell = scopes.cells(node.scope)[-1]
    ours = isinstance(cell, CellWrapper) and type(cell).__module__.startswith("msgrad.")
    return cell if ours and _MARK in node.attributes else None


def _text(node: Node, scopes: _Scopes) -> str:
    cell = scopes.cells(node.scope)[-1]
    where = f" at {scopes.path(cell)!r}" if scopes.path(cell) else ""
    if is_wrapper(cell):
        return f"{type(cell).__name__}{where}"
    if _MARK not in node.attributes:
        return f"the operator {node.op_type}{where or f' in {type(cell).__name__}'}"
    lines = stop_lines(cell)
    written = f"stop_gradient in {type(cell).__name__}{where}"
    return f"{written}, {' or '.join(lines)}," if lines else written


def _few(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return " and ".join(texts[:3]) + more


# --- the graph


def _value_inputs(node: Node) -> tuple[str, ...]:
    """Return what an operator's value comes from: not what only has to happen before it."""
    if node.op_type == "UpdateState":
        return ()
    return node.inputs[:1] if node.op_type == "Depend" else node.inputs


def _hides_calls(graph: Graph) -> bool:
    """Whether a subgraph is called, which stands in the graph without a name."""
    known = {node.name for node in graph.nodes} | set(graph.parameters)
    return any(
        name not in known and not name.startswith("cst") for n in graph.nodes for name in n.inputs
    )


def _first_blocks(graph: Graph, names: Sequence[str]) -> dict[str, list[Node] | None]:
    """Return for each weight the first blocks on its ways to the loss; None where there is no way.

    A block is a marked stop, or an operator without a derivative.
    """
    leads = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.name in leads:
            leads.update(_value_inputs(node))
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.name in leads:
            for name in _value_inputs(node):
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


def _on_way(graph: Graph, name: str) -> list[str]:
    """Return the scopes of the operators between a weight and the loss."""
    reached = {name}
    scopes = []
    for node in graph.nodes:
        if reached & set(_value_inputs(node)):
            reached.add(node.name)
            scopes.append(node.scope)
    return scopes


# --- the mark


@contextmanager
def _marked_stops(root: nn.Cell) -> Iterator[None]:
    """Let what is compiled meanwhile have an operator with a mark in the place of each stop."""
    places = [_home_of_the_operator(), *(vars(cell) for cell in every_cell(root))]
    changed = [(p, k, v) for p in places for k, v in list(p.items()) if _is_stop(v)]
    for place, key, _ in changed:
        place[key] = _marked
    try:
        yield
    finally:
        for place, key, value in changed:
            place[key] = value


def _home_of_the_operator() -> dict[str, Any]:
    """Return the names of the module in which `ops.stop_gradient` finds its operator."""
    return ops.stop_gradient.__globals__


def _is_stop(value: object) -> bool:
    return isinstance(value, ops.Primitive) and value.name == "StopGradient"


# Any operator of the same shape and type that the compiler does not simplify.
_mark = ops.Sinh().add_prim_attr(_MARK, True)


def _marked(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _mark(value) if value.dtype in mstype.float_type else value
    if isinstance(value, tuple):
        return tuple([_marked(item) for item in value])
    if isinstance(value, list):
        return [_marked(item) for item in value]
    return value
