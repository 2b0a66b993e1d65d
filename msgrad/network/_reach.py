"""The reach of a network: the set of parameters that a gradient can get to.

Found from the compiled gradient graph: a parameter is reached where its gradient depends on the
factor that the outputs are multiplied by. Nothing is run for that. Where control flow hides the
dependency, trials with random weights decide, and what they do not see is said to be unseen, not
unreached.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.backend import Graph, Node, compiled_graph
from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.network._values import copy_of, write

TRIALS = 7
_FLOATS = mstype.float_type


@dataclass(frozen=True)
class Reach:
    """The names a gradient gets to, where no trial saw one, and where it cannot get to."""

    reached: list[str]
    unseen: list[str]
    unreached: list[str]


def reach(network: nn.Cell, *inputs: object) -> list[str]:
    """Name the parameters that a gradient of the network's outputs can get to.

    The gradient is that of a sum over all floating outputs, with fixed unequal weights. It answers
    "could it", from the structure of the compiled gradient graph, whatever the values and flags
    are; nothing is run and nothing changes. Where a tensor-dependent ``if`` or loop hides the
    structure, a few runs with random weights decide; everything is restored after them, except the
    hidden stream of an active dropout.

    Args:
        network: Network or loss network, in the mode (``set_train``) that is asked about.
        *inputs: One example batch, as the network is called with.

    Returns:
        Names of floating parameters, whatever their flag, in network order.

    Raises:
        ArgumentTypeError: ``network`` is no Cell.
        ArgumentError: No inputs.

    Examples:
        >>> import numpy as np
        >>> from mindspore import Tensor, nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> mg.stop_gradient(net, "0")
        ['0']
        >>> mg.reach(net, Tensor(np.ones((1, 4), np.float32)))
        ['2.weight', '2.bias']
    """
    return find_reach(network, inputs).reached


def find_reach(network: nn.Cell, inputs: Sequence[object]) -> Reach:
    """Sort the floating parameters of a network into reached, unseen and unreached.

    Raises:
        ArgumentTypeError: The network is no Cell.
        ArgumentError: There are no inputs.
    """
    if not isinstance(network, nn.Cell):
        raise ArgumentTypeError(f"network {network!r} is a {type(network).__name__}; give a Cell")
    if not inputs:
        raise ArgumentError("reach got no inputs; give one batch, as the network is called with")
    weights = [p for p in network.get_parameters() if p.dtype in _FLOATS]
    if not weights:
        return Reach([], [], [])
    gradient = GradientCell(_ScaledTotal(network), weights)
    graph = compiled_graph(gradient, one(), *inputs)
    return sorted_reach(gradient, graph, weights, inputs)


def one() -> Tensor:
    """Return the 1 that a gradient is multiplied by; it must not be a constant of the graph."""
    return Tensor(1.0, mstype.float32)


def sorted_reach(
    gradient: nn.Cell, graph: Graph, weights: Sequence[Parameter], inputs: Sequence[object]
) -> Reach:
    """Sort weights by the graph of their gradients, and by running it where that does not tell."""
    found = by_structure(graph, len(weights))
    seen = [False] * len(weights)
    if None in found:
        everything = list(gradient.get_parameters())
        before = [copy_of(p) for p in everything]
        try:
            seen = by_trials(lambda *given: gradient(one(), *given), weights, inputs)
        finally:
            for parameter, value in zip(everything, before, strict=True):
                write(parameter, value)
    hit = [s or (s is None and t) for s, t in zip(found, seen, strict=True)]
    names = [p.name for p in weights]
    return Reach(
        [n for n, h in zip(names, hit, strict=True) if h],
        [n for n, s, h in zip(names, found, hit, strict=True) if s is None and not h],
        [n for n, s in zip(names, found, strict=True) if s is False],
    )


class _ScaledTotal(nn.Cell):
    """A weighted sum of the floating outputs, times a factor that is an input of the graph."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, factor: Tensor, *inputs: object) -> Tensor:
        return self.total(self.network(*inputs)) * factor

    def total(self, value: Any) -> Tensor:
        out = Tensor(0.0, mstype.float32)
        if isinstance(value, Tensor):
            if value.dtype in _FLOATS:
                flat = ops.cast(value, mstype.float32).reshape(-1)
                # unequal weights: the plain sum of a norm's or a softmax's outputs is constant
                out = (flat * ops.sin(ops.arange(flat.shape[0]) + 1.0)).sum()
        elif isinstance(value, (tuple, list)):
            for item in value:
                out = out + self.total(item)
        elif isinstance(value, dict):
            for item in value.values():
                out = out + self.total(item)
        return out


class GradientCell(nn.Cell):
    """The gradients of a cell whose first input is a factor, by a list of weights."""

    def __init__(self, total: nn.Cell, weights: Sequence[Parameter]) -> None:
        super().__init__(auto_prefix=False)
        self.total = total
        # named so that no parameter of the network can have the same attribute name
        self.msgrad_weights = ParameterTuple(weights)
        self.msgrad_gradient = ops.GradOperation(get_by_list=True)

    def construct(self, factor: Tensor, *inputs: object) -> tuple[Tensor, ...]:
        return self.msgrad_gradient(self.total, self.msgrad_weights)(factor, *inputs)


def by_structure(graph: Graph, count: int) -> list[bool | None]:
    """Say of each gradient whether it depends on the factor; None where a call hides it."""
    nodes = graph.by_name
    factor = graph.parameters[0]
    output = graph.outputs[0]
    while output in nodes and nodes[output].op_type != "MakeTuple":
        output = nodes[output].inputs[0]
    gradients = nodes[output].inputs if output in nodes else [output]
    if len(gradients) != count:
        return [None] * count
    known: dict[str, bool | None] = {name: False for name in graph.parameters}
    known[factor] = True
    for name in gradients:
        _mark(name, nodes, known)
    return [known[name] for name in gradients]


def _mark(name: str, nodes: dict[str, Node], known: dict[str, bool | None]) -> None:
    """Fill in, for a node and all before it, whether it depends on the factor."""
    stack = [name]
    while stack:
        top = stack[-1]
        inputs = nodes[top].inputs if top in nodes else ()
        unknown = [i for i in inputs if i not in known]
        if top in known or not unknown:
            stack.pop()
            if top not in known:
                known[top] = _depends(top, [known[i] for i in inputs])
        else:
            stack.extend(unknown)


def _depends(name: str, inputs: list[bool | None]) -> bool | None:
    if True in inputs:
        return True
    if None in inputs:
        return None
    # a call of a subgraph stands in the graph without a name: what reads it reads a name that is
    # nowhere
    return False if inputs or name.startswith("cst") else None


def by_trials(
    run: Callable[..., Sequence[Tensor]], weights: Sequence[Parameter], inputs: Sequence[object]
) -> list[bool]:
    """Take gradients with real, then random weights and inputs; say at which one was seen.

    What was written and what the runs move is for the caller to restore.
    """
    seen: list[bool] = []
    rng = np.random.default_rng(0)
    with silence():
        for trial in range(TRIALS):
            if trial:
                for parameter in weights:
                    write(parameter, _random_weight(parameter, rng))
            # inputs in pairs of both signs, so that a branch on a sign is taken both ways
            sign = 1 if trial % 2 else -1
            pair = np.random.default_rng((trial + 1) // 2)
            found = [
                _nonzero(g) for g in run(*(random_inputs(inputs, pair, sign) if trial else inputs))
            ]
            seen = [s or f for s, f in zip(seen or found, found, strict=True)]
    return seen


def _nonzero(gradient: Tensor) -> bool:
    values = copy_of(gradient)
    return bool(np.any(values != 0))  # NaN differs from 0, too


def _random_weight(parameter: Parameter, rng: np.random.Generator) -> np.ndarray:
    fan_in = max(1, int(np.prod(parameter.shape[1:])))
    values = rng.standard_normal(parameter.shape) / np.sqrt(fan_in)
    if parameter.name.endswith(("variance", "running_var")):
        values = np.abs(values) + 0.5
    return values


def random_inputs(inputs: Sequence[Any], rng: np.random.Generator, sign: int) -> list[Any]:
    """Replace floating tensors by random ones."""
    return [
        Tensor(sign * rng.standard_normal(value.shape).astype(np.float32), value.dtype)
        if isinstance(value, Tensor) and value.dtype in _FLOATS
        else value
        for value in inputs
    ]


@contextmanager
def silence() -> Iterator[None]:
    """Send to nowhere what is printed: by MindSpore to descriptors 1 and 2, eagerly to sys.stdout.

    What is tried and fails so that another way is taken would print its errors.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in kept:
            os.dup2(nowhere, stream)
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        sys.stderr.flush()
        for stream, copy in kept.items():
            os.dup2(copy, stream)
            os.close(copy)
        os.close(nowhere)
