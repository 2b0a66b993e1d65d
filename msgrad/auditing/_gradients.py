"""The gradients of a step: from a graph of the loss, or as they come to the optimizer.

The graph of the loss also tells where a path is; what comes to the optimizer does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.backend import called_graph, forget, running_in
from msgrad.network import (
    GradientCell,
    Reach,
    by_trials,
    copy_of,
    norm_of,
    one,
    silence,
    sorted_reach,
    write,
)
from msgrad.optim import GradientRecorder, put_back, put_instead

_numbers = itertools.count()
# Steps to wait for a call of the optimizer.
_PATIENCE = 8


class LossGradients:
    """Gradients of a loss network, whatever the flags are, in one compiled graph."""

    def __init__(self, loss: nn.Cell) -> None:
        self.weights = [p for p in loss.get_parameters() if p.dtype in mstype.float_type]
        self._loss = loss
        self._cell = GradientCell(LossTimes(loss), self.weights)

    def norms(self, inputs: Sequence[object]) -> dict[int, float]:
        """Run the graph on real weights."""
        return self._norms(self._cell, inputs)

    def norms_of_all(self, inputs: Sequence[object]) -> dict[int, float]:
        """Take the gradients of all that the network returns, as MindSpore does unasked."""
        return self._norms(GradientCell(LossTimes(self._loss, alone=False), self.weights), inputs)

    def _norms(self, cell: nn.Cell, inputs: Sequence[object]) -> dict[int, float]:
        with running_in(ms.GRAPH_MODE), silence():
            found = cell(one(), *inputs)
        return {id(p): norm_of(copy_of(g)) for p, g in zip(self.weights, found, strict=True)}

    def reach(self, inputs: Sequence[object]) -> Reach:
        """Read the graph, and run it with random weights where it does not tell."""
        with running_in(ms.GRAPH_MODE):
            return sorted_reach(self._cell, called_graph(self._cell), self.weights, inputs)

    def forget(self) -> None:
        """Do nothing: the graph goes with its cell."""


class LossTimes(nn.Cell):
    """The sum of a loss, times a factor that is an input of the graph.

    Args:
        network: Returns the loss, or a tuple of the loss and more.
        alone: Whether the first of several values is the loss; else it is the sum of them all.
    """

    def __init__(self, network: nn.Cell, alone: bool = True) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.alone = alone

    def construct(self, factor: Tensor, *inputs: object) -> Tensor:
        out = self.network(*inputs)
        if not isinstance(out, (tuple, list)):
            return ops.cast(out, mstype.float32).sum() * factor
        total = ops.cast(out[0], mstype.float32).sum()
        if not self.alone:
            for other in out[1:]:
                total = total + ops.cast(other, mstype.float32).sum()
        return total * factor


class StepGradients:
    """Gradients as they come to the optimizers of a train cell, clipped and scaled by it."""

    def __init__(self, step: nn.Cell, optimizers: Sequence[nn.Cell]) -> None:
        self.weights = list({id(p): p for o in optimizers for p in o.parameters}.values())
        self._step = step
        self._recorders = {id(o): GradientRecorder(o, largest=True) for o in optimizers}
        # A phase of its own: the user's compiled graph is neither used nor lost.
        self._phase = f"{step.phase}.msgrad.audit.{next(_numbers)}"

    def forget(self) -> None:
        """Let go of the graph in which the recorders are."""
        for phase in [key for key in self._step.compile_cache if f"{self._phase}." in key]:
            forget(self._step, phase)

    def norms(self, inputs: Sequence[object]) -> dict[int, float]:
        """Run the step, a few times where it sums gradients before it calls the optimizer."""
        for _ in range(_PATIENCE):
            self.run(*inputs)
            if all(r.called for r in self._recorders.values()):
                break
        return {k: n for r in self._recorders.values() for k, n in r.norms().items()}

    def reach(self, inputs: Sequence[object]) -> Reach:
        """Run the step with random weights."""
        return _reach_by_trials(self.run, self.weights, inputs)

    def run(self, *inputs: object) -> list[Tensor]:
        """Do a step through the recorders and return the sizes of the gradients."""
        phase = self._step.phase
        stood = put_instead(self._step, self._recorders)
        self._step.phase = self._phase
        try:
            self._step(*inputs)
        finally:
            self._step.phase = phase
            put_back(stood)
        kept = {k: v for r in self._recorders.values() for k, v in r.noted.items()}
        return [kept[id(p)] for p in self.weights]


class FunctionGradients:
    """Gradients as they come to an optimizer that a Python function calls."""

    def __init__(self, function: Callable[..., object], optimizers: Sequence[nn.Cell]) -> None:
        self.weights = list({id(p): p for o in optimizers for p in o.parameters}.values())
        # What `ms.jit` made calls the optimizer inside a graph.
        self._function: Callable[..., object] = getattr(function, "__wrapped__", function)
        self._optimizers = optimizers

    def norms(self, inputs: Sequence[object]) -> dict[int, float]:
        """Run the function."""
        return {
            id(p): norm_of(copy_of(g))
            for p, g in zip(self.weights, self.run(*inputs), strict=True)
            if g is not None
        }

    def reach(self, inputs: Sequence[object]) -> Reach:
        """Run the function with random weights."""
        return _reach_by_trials(self.run, self.weights, inputs)

    def run(self, *inputs: object) -> list[Any]:
        """Run the function and return the gradients that an optimizer was called with."""
        kept: dict[int, Tensor] = {}
        with _listening(self._optimizers, kept):
            self._function(*inputs)
        return [kept.get(id(p)) for p in self.weights]

    def forget(self) -> None:
        """Do nothing: nothing is kept."""


# One way to take gradients each; what it runs and moves is for the caller to restore.
Gradients: TypeAlias = LossGradients | StepGradients | FunctionGradients


@contextmanager
def _listening(optimizers: Sequence[nn.Cell], kept: dict[int, Tensor]) -> Iterator[None]:
    """Let optimizers note the gradients that Python calls them with."""
    kinds = [type(optimizer) for optimizer in optimizers]
    for optimizer, kind in zip(optimizers, kinds, strict=True):
        # A class of its own, since Python looks up __call__ there.
        optimizer.__class__ = _listener(kind, kept)
    try:
        yield
    finally:
        for optimizer, kind in zip(optimizers, kinds, strict=True):
            optimizer.__class__ = kind


def _listener(kind: type[nn.Cell], kept: dict[int, Tensor]) -> type[nn.Cell]:
    def __call__(self: nn.Cell, grads: Any, *args: Any, **kwargs: Any) -> Any:
        kept.update({id(p): g for p, g in zip(self.parameters, grads, strict=False)})
        return kind.__call__(self, grads, *args, **kwargs)

    return type(kind.__name__, (kind,), {"__call__": __call__, "__module__": kind.__module__})


def _reach_by_trials(
    run: Callable[..., Sequence[Tensor]], weights: Sequence[Parameter], inputs: Sequence[object]
) -> Reach:
    before = [copy_of(p) for p in weights]
    try:
        seen = by_trials(run, weights, inputs)
    finally:
        for parameter, value in zip(weights, before, strict=True):
            write(parameter, value)
    return Reach(
        [str(p.name) for p, s in zip(weights, seen, strict=True) if s],
        [str(p.name) for p, s in zip(weights, seen, strict=True) if not s],
        [],
    )
