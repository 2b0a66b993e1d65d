"""A compiled graph as data: its operators, what feeds them, its parameters; compiled, never run."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.train import anf_ir_pb2

try:
    from mindspore.graph.api import _cell_graph_executor  # pyright: ignore  # private, from 2.9
except ImportError:
    from mindspore.common.api import _cell_graph_executor  # pyright: ignore  # private, to 2.8

from msgrad.backend._execution import running_in

_numbers = itertools.count()


@dataclass(frozen=True)
class Node:
    """One operator of a graph.

    Attributes:
        name: What other nodes call its result.
        op_type: The operator, as in `MatMul`.
        inputs: The names of nodes, parameters and constants that it reads, in order.
        scope: The cells that it stands in, as in `Default/fc-Dense`.
        attributes: The names of its attributes.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    scope: str = ""
    attributes: frozenset[str] = frozenset()

    @property
    def value_inputs(self) -> tuple[str, ...]:
        """What the value comes from: not what only has to happen before it."""
        if self.op_type == "UpdateState":
            return ()
        return self.inputs[:1] if self.op_type in ("Depend", "Load") else self.inputs


@dataclass(frozen=True)
class Graph:
    """A graph as the front end leaves it.

    Attributes:
        nodes: The operators, in order of execution.
        parameters: The names of the graph's inputs, weights among them.
        outputs: The names of what it returns.
    """

    nodes: tuple[Node, ...]
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def operators(self) -> Counter[str]:
        """How often each operator occurs."""
        return Counter(node.op_type for node in self.nodes)

    @cached_property
    def by_name(self) -> dict[str, Node]:
        """The operators by the names of their results."""
        return {node.name: node for node in self.nodes}

    def sources(self, name: str) -> set[str]:
        """Return all that a value is made from: nodes, parameters, constants, itself."""
        found: set[str] = set()
        stack = [name]
        while stack:
            top = stack.pop()
            if top in found:
                continue
            found.add(top)
            if top in self.by_name:
                stack.extend(self.by_name[top].value_inputs)
        return found

    def hides(self, name: str) -> bool:
        """Say whether a value comes from a call of a subgraph, which stands nowhere here."""
        return name not in self._known and not name.startswith("cst")

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.by_name).union(self.parameters)


def compiled_graph(cell: nn.Cell, *inputs: Any) -> Graph:
    """Compile a cell for these inputs and return the graph; nothing is run, no weight changes.

    In PYNATIVE_MODE it switches to GRAPH_MODE for the call and back.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import nn
        >>> compiled_graph(nn.Dense(4, 2), ms.Tensor([[1.0, 2.0, 3.0, 4.0]])).operators["MatMul"]
        1
    """
    with running_in(ms.GRAPH_MODE):
        # A phase of its own: what was compiled before is neither reused nor replaced.
        phase, _ = _cell_graph_executor.compile(
            cell, *inputs, phase=f"msgrad.graph.{next(_numbers)}"
        )
        text = _cell_graph_executor._graph_executor.get_func_graph_proto(phase, "anf_ir", False)
        forget(cell, phase)
    return _read(text)


def called_graph(cell: nn.Cell) -> Graph:
    """Return the graph that the last call of a cell in GRAPH_MODE compiled; it costs no compile."""
    return _read(cell.get_func_graph_proto())


def forget(cell: nn.Cell, phase: str) -> None:
    """Let go of one compiled graph of a cell."""
    phases: set[str] = cell.compile_cache
    phases.discard(phase)
    _cell_graph_executor.del_net_res(cell, {phase})


def _read(text: bytes) -> Graph:
    model = anf_ir_pb2.ModelProto()  # pyright: ignore  # made when imported, unseen by pyright
    model.ParseFromString(text)
    graph = model.graph
    return Graph(
        nodes=tuple(
            Node(
                node.name,
                node.op_type,
                tuple(source.name for source in node.input),
                node.scope,
                frozenset(attribute.name for attribute in node.attribute),
            )
            for node in graph.node
        ),
        parameters=tuple(parameter.name for parameter in graph.parameters),
        outputs=tuple(output.name for output in graph.outputs),
    )
